#!/usr/bin/env bash
# Write .env, or the file that is named, with random secrets for docker-compose.yaml; one that is there stays as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
file=${1:-.env}
if [ -e "$file" ]; then
  echo "▸ $file is there already; nothing changed."
  exit 0
fi
umask 077
# Hex only, because POSTGRES_PASSWORD becomes part of a URL.
hex() { od -An -N"$1" -tx1 /dev/urandom | tr -d ' \n'; }
cat >"$file" <<END
POSTGRES_PASSWORD=$(hex 16)
SHOP_READER_PASSWORD=$(hex 16)
AIRFLOW_ADMIN_PASSWORD=$(hex 12)
AIRFLOW_SECRET_KEY=$(hex 32)
AIRFLOW_FERNET_KEY=$(head -c 32 /dev/urandom | base64 | tr '+/' '-_')
END
echo "▸ Wrote $file; AIRFLOW_ADMIN_PASSWORD in it is what the user admin signs in with."
