"""Names from user input, checked once and quoted everywhere."""

from __future__ import annotations

import re

from airflow_mv_provider.exceptions import InvalidIdentifierError

_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_MAX_COLUMN_CHARS = 255
# Control characters, and the back-tick, which would end a quote. Delta's column mapping supports line feed and tab.
_BAD_IN_COLUMN = re.compile(r"[`\x00-\x08\x0b-\x1f\x7f]")
_MAPPED_IN_COLUMN = re.compile(r"[ ,;{}()\n\t=]")
RESERVED_PREFIX = "_mv_"
SESSION_CATALOG = "spark_catalog"  # Spark's own name of the catalog that a Hive metastore is behind
ERRORS_SUFFIX = "__errors"  # an error table lies beside its main, under main's name plus this suffix
HISTORY_SUFFIX = "__history"  # and so does the history of its rows


def check_table_name(name: str) -> str:
    """Return `name` if it is one to three plain parts joined by dots.

    Raises:
        InvalidIdentifierError: Showing at most 60 characters of it.
    """
    parts = name.split(".")
    if len(parts) > 3 or not all(_PART.match(part) for part in parts):
        raise InvalidIdentifierError("table name", f"{_shown(name)} is not a name of one to three plain parts.")
    if any(part.startswith(RESERVED_PREFIX) or part == "_mv" for part in parts):
        raise InvalidIdentifierError(
            "table name", f"{_shown(name)} begins with the reserved prefix _mv.", hint="Choose another name."
        )
    for suffix, what in ((ERRORS_SUFFIX, "error tables"), (HISTORY_SUFFIX, "histories")):
        if any(part.endswith(suffix) for part in parts):
            problem = f"{_shown(name)} ends with {suffix}, as {what} do."
            raise InvalidIdentifierError("table name", problem, hint="Choose another name.")
    return name


def check_catalog_name(name: str) -> str:
    """Return the name of a table of Spark's catalog as the catalog stores it, in lower case.

    Raises:
        InvalidIdentifierError: Unless it is spark_catalog.<schema>.<table>.
    """
    parts = name.split(".")
    hint = f"Write {SESSION_CATALOG}.<schema>.<table>, of letters, digits and underscores."
    if len(parts) != 3 or not all(_PART.match(part) for part in parts):
        raise InvalidIdentifierError("catalog name", f"{_shown(name)} is not catalog.schema.table.", hint=hint)
    if parts[0].lower() != SESSION_CATALOG:
        problem = f"{_shown(name)} is not in {SESSION_CATALOG}, the only catalog that is supported."
        raise InvalidIdentifierError("catalog name", problem, hint=hint)
    return name.lower()


def check_column_name(name: str) -> str:
    """Return `name` if Delta can store a column of this name and it has no reserved prefix.

    Raises:
        InvalidIdentifierError
    """
    if not name.strip() or len(name) > _MAX_COLUMN_CHARS or _BAD_IN_COLUMN.search(name):
        raise InvalidIdentifierError(
            "column name",
            f"{_shown(name)} is empty, too long, or has a character that Delta refuses.",
            hint="Rename the column in `select`.",
        )
    if name.lower().startswith(RESERVED_PREFIX):
        raise InvalidIdentifierError(
            "column name",
            f"{_shown(name)} begins with the reserved prefix _mv_.",
            hint="Rename it in `select`.",
        )
    return name


def check_columns(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return `names` if all are names of columns and none is there twice.

    Raises:
        InvalidIdentifierError
        ValueError
    """
    for name in names:
        check_column_name(name)
    if len({name.lower() for name in names}) < len(names):
        raise ValueError("a column is named twice")
    return names


def needs_mapping(name: str) -> bool:
    """True if Delta can store a column of this name only with column mapping, under another name."""
    return _MAPPED_IN_COLUMN.search(name) is not None


def quoted(name: str) -> str:
    """Return `name` as one quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return `text` as a SQL string literal with backslash escapes, as Spark parses it by default.

    `spark.sql.parser.escapedStringLiterals` must be false, its default; a session that sets it prints a warning.
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _shown(name: str) -> str:
    text = name if len(name) <= 60 else name[:57] + "..."
    return repr(text)
