"""Secrets that no output may show: how to find them in addresses, and how to remove them from a text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus, unquote

from airflow_mv_provider.exceptions import UnsafeLocationError

SHOWN_INSTEAD = "***"
_MIN_CHARS = 3  # a shorter password would match parts of many ordinary words
# user:password@ before a host: a colon in the authority that starts neither a port nor the address of another root.
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]{0,30}://"
_USER_AND_PASSWORD = re.compile(rf"{_SCHEME}[^/]*?:(?!\d*(?:[/?#;,:]|\Z)|{_SCHEME})")
_SECRET_NAME = re.compile(
    r"passw(or)?d|passphrase|pwd|secret|token|credential|auth[_.]user[_.]info|(access|account|api|private|sas)[_.-]?(key|id)",
    re.IGNORECASE,
)
_CONNECT_SECRET = re.compile(r";\s*(?:token|x-[\w-]*)\s*=([^;]+)")


def check_no_password(where: str, address: str) -> None:
    """Refuse a path or a root that contains a user and a password: paths are shown, stored and logged.

    raises : UnsafeLocationError, whose message does not contain the address
    """
    if _USER_AND_PASSWORD.search(unquote(address)):
        hint = "Give credentials to Spark's own configuration (fs.s3a.*, fs.azure.*), and leave them out of the path."
        raise UnsafeLocationError(where, "the address contains a password.", hint=hint)


def may_be_secret(name: str, text: str) -> bool:
    """True if a text may contain a secret: its name or the text mentions one, or it is an address with a password."""
    return any(map(_SECRET_NAME.search, (name, text))) or bool(_USER_AND_PASSWORD.search(unquote(text)))


def of_connect_address(remote: str | None) -> tuple[str, ...]:
    """Return the secrets of a Spark Connect server's address: all of it, and each token and header in it."""
    return every_spelling([remote, *_CONNECT_SECRET.findall(remote)]) if remote else ()


def every_spelling(secrets: Iterable[str | None]) -> tuple[str, ...]:
    """Return secrets, plain and URL-quoted, the longest first; spellings under three characters are left out."""
    spelt = {form for secret in secrets if secret for form in (secret, quote(secret, safe=""), quote_plus(secret))}
    return tuple(sorted((form for form in spelt if len(form) >= _MIN_CHARS), key=lambda form: (-len(form), form)))


def without(secrets: Iterable[str], text: str) -> str:
    """Return a text with every secret replaced by `***`."""
    for secret in secrets:
        text = text.replace(secret, SHOWN_INSTEAD)
    return text
