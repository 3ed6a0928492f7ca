"""How MariaDB's columns travel to Spark; `exact` gives the reasons.

Texts of values are taken where the driver or Spark would change a value: a date may be `0000-00-00`, a DATETIME has no
zone, a TIME may be longer than a day. MariaDB's own text of a FLOAT has six digits only, so it is widened to a DOUBLE,
unless these six are enough.

The server sends texts as UTF-8 and replaces what it cannot convert from a column's own character set. Those of a set in
which that can happen travel as bytes, which are none of UTF-8 where the conversion is not reversible.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mv_provider.core.definition.identifier import quoted  # MariaDB quotes names as Spark does
from airflow_mv_provider.sources.jdbc.exact import Column, from_text

# Types of columns as the protocol numbers them; and marks that it gives beside them.
_WHOLE = {1: "INT", 2: "INT", 9: "INT", 13: "INT", 3: "BIGINT"}  # TINYINT, SMALLINT, MEDIUMINT, YEAR, INT: of any sign
_FLOAT, _DOUBLE, _NULL, _BIGINT, _DATE, _TIME, _BIT = 4, 5, 6, 8, 10, 11, 16
_MOMENTS = (7, 12)  # TIMESTAMP, DATETIME
_DECIMAL, _GEOMETRY, _JSON_OF_MYSQL = 246, 255, 245
_CHAR = 254  # ENUM and SET, too; and UUID and INET, which the driver calls by types that Spark does not know
_TEXTS = (252, 253, _CHAR, _NULL)  # BLOB and TEXT, VARCHAR
_NAMES = {_DECIMAL: "decimal", _GEOMETRY: "geometry"}
_BINARY_CHARSET, _UNSIGNED = 63, 32
_CHECKED = ("utf8mb4", "utf8mb3", "utf8", "latin1")  # the server lets no other bytes in, or converts each of them
_MAX_DIGITS = 38
_UTF_8 = "UTF-8"


@dataclass(frozen=True, slots=True)
class Field:
    """A column as the server describes a result.

    code   : its type
    length : of a number, the characters that it may need
    """

    name: str
    code: int
    flags: int
    length: int
    scale: int
    charset: int

    @property
    def is_unsigned(self) -> bool:
        """Whether a number has no sign."""
        return bool(self.flags & _UNSIGNED)

    @property
    def has_text(self) -> bool:
        """Whether its values are texts, of some character set."""
        return self.code in _TEXTS and self.charset != _BINARY_CHARSET

    @property
    def is_binary(self) -> bool:
        """Whether its values are bytes, of no character set."""
        return self.code in _TEXTS and self.charset == _BINARY_CHARSET and self.code != _NULL

    @property
    def is_geometry(self) -> bool:
        """Whether it has no text of its own."""
        return self.code == _GEOMETRY

    @property
    def digits(self) -> int:
        """The digits of a DECIMAL; a point and a sign need a character each."""
        return self.length - (self.scale > 0) - (not self.is_unsigned)

    @property
    def type_name(self) -> str:
        """The type, as errors name it."""
        if self.code == _DECIMAL:
            return f"decimal({self.digits},{self.scale})"
        return _NAMES.get(self.code, f"type {self.code}")


def column(field: Field, wanted: str | None, charset: str | None = None) -> Column | None:
    """Return how a column travels; None if Spark has no exact type for it.

    Args:
        wanted: The type that the definition's `columns` gives; None if it gives none.
        charset: The column's own character set, if it has texts.
    """
    name, code, it = field.name, field.code, quoted(field.name)
    text = f"CAST({it} AS CHAR)"
    moment = _moment(it)
    if wanted is not None:
        return _converted(field, wanted, charset)
    if code in _WHOLE:
        return _as_is(name, it, _WHOLE[code])
    if code == _BIGINT:
        return _as_is(name, it, "DECIMAL(20,0)" if field.is_unsigned else "BIGINT")
    if code == _BIT:
        return _as_is(name, f"CAST({it} AS UNSIGNED)", "DECIMAL(20,0)" if field.length == 64 else "BIGINT")
    if code == _DECIMAL:
        return _as_is(name, it, f"DECIMAL({field.digits},{field.scale})") if field.digits <= _MAX_DIGITS else None
    if code == _FLOAT:
        return Column(name, f"({it} * 1e0)", "DOUBLE", "FLOAT", "CAST({it} AS FLOAT)")
    if code == _DOUBLE:
        return _as_is(name, f"({it} * 1e0)", "DOUBLE")  # DOUBLE(10,2) would be sent with two decimals
    if code == _DATE:
        return from_text(name, text, "DATE")
    if code in _MOMENTS:
        return from_text(name, moment, "TIMESTAMP")
    if code in (_TIME, _JSON_OF_MYSQL):
        return _as_is(name, text, "STRING")
    if field.is_binary:
        return _as_is(name, it, "BINARY")
    if code in _TEXTS:
        return _text(name, text if code == _CHAR else it, it, "STRING", charset)
    return None


def _converted(field: Field, wanted: str, charset: str | None) -> Column | None:
    """Return how a column travels as text to become `wanted`; None if it has no text."""
    name, code, it = field.name, field.code, quoted(field.name)
    text = f"CAST({it} AS CHAR)"
    if field.is_geometry:
        return None
    if field.is_binary:
        return from_text(name, it, wanted, _UTF_8)
    if code == _BIT:
        text = f"CAST(CAST({it} AS UNSIGNED) AS CHAR)"
    if code in (_FLOAT, _DOUBLE):
        text = _number(it, is_float=code == _FLOAT and wanted != "DOUBLE")
    if code in _MOMENTS and wanted == "TIMESTAMP":
        text = _moment(it)
    return _text(name, text, it, wanted, charset)


def _moment(it: str) -> str:
    """Return an expression for a time with its zone; CONCAT is not NULL for NULL in Oracle's mode."""
    return f"CASE WHEN {it} IS NOT NULL THEN CONCAT(CAST({it} AS CHAR), 'Z') END"


def _number(it: str, *, is_float: bool) -> str:
    """Return an expression for the shortest exact text of a FLOAT or a DOUBLE."""
    exact, short = f"CAST({it} * 1e0 AS CHAR)", f"CAST({it} AS CHAR)"
    return f"CASE WHEN CAST({short} AS FLOAT) = {it} THEN {short} ELSE {exact} END" if is_float else exact


def _text(name: str, text: str, it: str, kind: str, charset: str | None) -> Column:
    """Return how a text travels: as bytes, if its conversion to UTF-8 may lose some."""
    if charset is None or charset in _CHECKED:
        return from_text(name, text, kind)
    converted = f"CONVERT({it} USING utf8mb4)"
    is_same = f"CAST(CONVERT({converted} USING {charset}) AS BINARY) = CAST({it} AS BINARY)"
    # No text of UTF-8 contains x'FF', so that the reader refuses it.
    lossy = f"CONCAT(CAST({it} AS BINARY), x'FF')"
    sent = f"CASE WHEN {is_same} THEN CAST({converted} AS BINARY) WHEN {it} IS NOT NULL THEN {lossy} END"
    return from_text(name, sent, kind, _UTF_8)


def _as_is(name: str, sql: str, kind: str) -> Column:
    return Column(name, sql, kind, kind)
