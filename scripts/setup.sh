#!/usr/bin/env bash
# Make .venv, and check or install Java, jars and servers. Idempotent: whatever is present stays unchanged.
# Needs Python 3.11 or newer and the package registries; everything else it finds, installs through apt as root, or names.
#   bash scripts/setup.sh             Java and Delta's jars: what the demo needs
#   bash scripts/setup.sh server      PostgreSQL's programs too: what `make up` needs
#   bash scripts/setup.sh all         Chromium, MariaDB's and PgBouncer's programs too: what the tests need
#   PYTHON=/path/to/python3.12 bash scripts/setup.sh    chooses the interpreter of a new .venv
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
log=$venv/setup.log

say() { printf '▸ %s\n' "$*"; }
die() {
  printf '✗ %s\n' "$*" >&2
  exit 1
}

# The log's most informative line: a registry that does not answer, then an error of uv, pip, apt or Ivy, then the last line.
reason() {
  local pattern telling=''
  for pattern in 'Failed to fetch|Could not find a version|Server access error' '[Cc]onnection refused|[Tt]imed out' \
    '^(error|ERROR|E): |^ *× |module not found: ' '[^[:space:]]'; do
    [ -n "$telling" ] || telling=$(grep -E "$pattern" "$log" | tail -n 1) || true
  done
  sed 's/^[[:space:]]*//' <<<"$telling" | cut -c 1-200
}

# Run a command quietly: its output goes to the log, and a failure prints what failed, why, and the log's path.
quietly() {
  local what=$1
  shift
  "$@" >>"$log" 2>&1 </dev/null || die "$what failed: $(reason) (whole output: $log)"
}

can_apt() {
  command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

# What keeps a package from starting a server while it is installed; removed whatever becomes of it.
temporary=()
# Before bash 4.4, as on macOS, an empty array is an unbound variable.
trap 'for file in ${temporary[@]+"${temporary[@]}"}; do as_root rm -f "$file"; done' EXIT

apt_is_fresh=false
apt_update() {
  if [ "$apt_is_fresh" = false ]; then
    quietly "apt-get update" as_root apt-get update -qq
    apt_is_fresh=true
  fi
}

# Whether this release has all of some packages: not every one has Chromium, or Java 17.
can_install() {
  local package
  can_apt || return 1
  apt_update
  for package in "$@"; do
    apt-cache policy "$package" | grep -q 'Candidate: [^(]' || return 1
  done
}

apt_install() {
  apt_update
  quietly "Installing $*" as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# ---- Python -----------------------------------------------------------------------------------------------------------

is_python_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# 3.11 first: constraints.txt is frozen on it. A pyenv shim may exist and still fail, so each one is asked.
find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3 python; do
    if is_python_new_enough "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

has_uv() { "$1" --version >/dev/null 2>&1; }

make_venv() {
  local python
  python=$(find_python) || die "Python 3.11 or newer is missing: install python3.11 (apt-get install python3 on Debian 12 or newer), or name one with PYTHON=/path/to/python."
  say "Making $venv with $("$python" --version)"
  mkdir -p "$venv"
  : >"$log"
  if has_uv uv; then
    quietly "Making $venv" uv venv --quiet --allow-existing --python "$python" "$venv"
    return
  fi
  # Debian's python3 comes without the venv module, which is in a package for each version.
  if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    local package
    package="$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')-venv"
    can_install "$package" || die "Python's venv module is missing: apt-get install $package, or install uv."
    apt_install "$package"
  fi
  quietly "Making $venv" "$python" -m venv "$venv"
}

# One that was interrupted while it was made has no pip, and one of another place has programs that point there.
is_venv_whole() {
  [ -e "$venv/place" ] && [ "$(cat "$venv/place")" = "$PWD" ] && is_python_new_enough "$venv/bin/python"
}

# The path is part of it: an editable install points at the checkout that it was made from.
wanted() { { pwd && cat pyproject.toml constraints.txt; } | cksum; }

install_packages() {
  local uv='' requirements=(--constraint constraints.txt --editable '.[dev,postgres]')
  if has_uv uv; then
    uv=uv
  elif has_uv "$venv/bin/uv"; then
    uv=$venv/bin/uv
  elif "$venv/bin/python" -m pip install --quiet uv >>"$log" 2>&1 </dev/null; then
    uv=$venv/bin/uv # several times faster than pip; without it pip does the same
  fi
  if [ -n "$uv" ]; then
    say "Installing the packages of constraints.txt (uv)"
    quietly "Installing from the package registry" \
      "$uv" pip install --quiet --compile-bytecode --python "$venv/bin/python" "${requirements[@]}"
  else
    say "Installing the packages of constraints.txt (pip, some minutes)"
    quietly "Installing from the package registry" "$venv/bin/python" -m pip install --quiet "${requirements[@]}"
  fi
  # pip compiles what it installs, uv on request only, and neither an editable install. Where PYTHONDONTWRITEBYTECODE is
  # set, as in many containers, each process would otherwise compile it all again: 2 CPU seconds for each `airflow` command.
  "$venv/bin/python" -m compileall -q airflow_mv_provider >>"$log" 2>&1 || true
  wanted >"$venv/installed"
}

# ---- Java -------------------------------------------------------------------------------------------------------------

# Spark prefers JAVA_HOME to PATH, so this does too.
java_command() { if [ -n "${JAVA_HOME:-}" ]; then echo "$JAVA_HOME/bin/java"; else echo java; fi; }

java_major() {
  "$(java_command)" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

is_java_there() {
  local major
  major=$(java_major) || return 1
  [ "${major:-0}" -ge 17 ]
}

ensure_java() {
  is_java_there && return
  local found=${JAVA_HOME:+ (JAVA_HOME is $JAVA_HOME)}
  local package
  for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
    if can_install "$package"; then break; fi
  done
  can_apt || die "Java 17 or newer is missing$found: apt-get install default-jre-headless, or set JAVA_HOME."
  say "Installing Java"
  apt_install "$package"
  is_java_there || die "Java 17 or newer is installed but another one is found first$found: unset JAVA_HOME or put it first on PATH."
}

# ---- PostgreSQL -------------------------------------------------------------------------------------------------------

# Debian keeps the server's programs off PATH.
is_postgresql_there() {
  local initdb
  for initdb in "$(command -v initdb || true)" /usr/lib/postgresql/*/bin/initdb; do
    if [ -x "$initdb" ]; then return 0; fi
  done
  return 1
}

# The tests start a server of their own on loopback. Debian's package would create and start one for the whole machine:
# postgresql-common goes in first, then a drop-in that forbids the cluster, then the server, and the drop-in goes again.
ensure_postgresql() {
  is_postgresql_there && return
  can_apt || die "The PostgreSQL server is missing: apt-get install postgresql, or put its initdb on PATH."
  say "Installing PostgreSQL (its programs only, no running server)"
  apt_install postgresql-common
  local drop_in=/etc/postgresql-common/createcluster.d/airflow-mv-provider.conf
  as_root mkdir -p "${drop_in%/*}"
  echo "create_main_cluster = false" | as_root tee "$drop_in" >/dev/null
  temporary+=("$drop_in")
  apt_install postgresql
  is_postgresql_there || die "PostgreSQL was installed but its initdb is not found: put it on PATH."
}

# ---- Chromium -------------------------------------------------------------------------------------------------------

# Only the tests of the page need it; whoever cannot install it can do everything else.
ensure_chromium() {
  local name
  for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then return; fi
  done
  if can_install chromium; then
    say "Installing Chromium"
    apt_install chromium
  else
    say "Chromium is missing: tests/browser will fail without it (Debian's package chromium, or Google Chrome)."
  fi
}

# ---- MariaDB ----------------------------------------------------------------------------------------------------------

# These packages have its programs and start no server. The tests of MariaDB as a source need them, and nothing else.
ensure_mariadb() {
  if command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ]; then return; fi
  if can_install mariadb-server-core mariadb-client-core; then
    say "Installing MariaDB (its programs only, no running server)"
    apt_install mariadb-server-core mariadb-client-core
  else
    say "MariaDB is missing: its tests will fail without it (apt-get install mariadb-server-core mariadb-client-core)."
  fi
}

# ---- PgBouncer --------------------------------------------------------------------------------------------------------

# The package would start a pooler for the whole machine; a masked unit keeps systemd from it while it is installed.
ensure_pgbouncer() {
  if command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]; then return; fi
  if ! can_install pgbouncer; then
    say "PgBouncer is missing: its tests will fail without it (apt-get install pgbouncer)."
    return
  fi
  say "Installing PgBouncer (its program only, no running server)"
  local unit=/etc/systemd/system/pgbouncer.service
  as_root mkdir -p "${unit%/*}"
  if as_root ln -s /dev/null "$unit" 2>/dev/null; then temporary+=("$unit"); fi
  apt_install pgbouncer
}

# ---- All of it --------------------------------------------------------------------------------------------------------

if ! is_venv_whole; then
  rm -rf "$venv"
  make_venv
  pwd >"$venv/place"
fi
: >"$log"
[ "$(cat "$venv/installed" 2>/dev/null)" = "$(wanted)" ] || install_packages
ensure_java
case ${1:-} in server | all) ensure_postgresql ;; esac
case ${1:-} in all) ensure_chromium && ensure_mariadb && ensure_pgbouncer ;; esac
if ! "$venv/bin/python" scripts/resolve_delta.py --check; then
  say "Fetching Delta's jars (about 20 s, once per machine)"
  quietly "Fetching Delta's jars" "$venv/bin/python" scripts/resolve_delta.py
fi
# The demo starts Spark too seldom for it to pay off; a running Airflow and the tests start it for every task.
case ${1:-} in
  server | all)
    compgen -G "${XDG_CACHE_HOME:-$HOME/.cache}/airflow-mv/*.jsa" >/dev/null \
      || say "Archiving the classes that Spark loads (half a minute, once per machine)"
    AMV_SPARK_REMOTE="" "$venv/bin/amv" warm-up >>"$log" 2>&1 </dev/null \
      || say "The classes could not be archived, so Spark starts more slowly: $(reason)"
    ;;
esac
say "Ready: Python $("$venv/bin/python" -c 'import platform; print(platform.python_version())'), Java $(java_major) and Delta's jars are there."
