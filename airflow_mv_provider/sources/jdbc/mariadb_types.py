"""How MariaDB's columns travel to Spark; `exact` gives the reasons.

Texts of values are taken where the driver or Spark would change a value: a date may be `0000-00-00`, a DATETIME has no
zone, a TIME may be longer than a day. A FLOAT's text has six digits only, so it is widened to a DOUBLE instead.
"""

from __future__ import annotations

from dataclasses import dataclass

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
_MAX_DIGITS = 38


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
    def digits(self) -> int:
        """The digits of a DECIMAL; a point and a sign need a character each."""
        return self.length - (self.scale > 0) - (not self.is_unsigned)

    @property
    def type_name(self) -> str:
        """The type, as errors name it."""
        if self.code == _DECIMAL:
            return f"decimal({self.digits},{self.scale})"
        return _NAMES.get(self.code, f"type {self.code}")


def column(field: Field, wanted: str | None) -> Column | None:
    """Return how a column travels; None if Spark has no exact type for it.

    wanted : the type that the definition's `columns` gives; None if it gives none
    """
    name, code, it = field.name, field.code, quoted(field.name)
    text = f"CAST({it} AS CHAR)"
    moment = f"CONCAT({text}, 'Z')"
    if wanted is not None and code not in (_GEOMETRY, _BIT):
        return from_text(name, moment if code in _MOMENTS and wanted == "TIMESTAMP" else text, wanted)
    if code in _WHOLE:
        return _as_is(name, it, _WHOLE[code])
    if code == _BIGINT:
        return _as_is(name, it, "DECIMAL(20,0)" if field.is_unsigned else "BIGINT")
    if code == _BIT:
        return _as_is(name, f"CAST({it} AS UNSIGNED)", "DECIMAL(20,0)" if field.length == 64 else "BIGINT")
    if code == _DECIMAL:
        return _as_is(name, it, f"DECIMAL({field.digits},{field.scale})") if field.digits <= _MAX_DIGITS else None
    if code == _FLOAT:
        return Column(name, f"({it} + 0e0)", "DOUBLE", "FLOAT", "CAST({it} AS FLOAT)")
    if code == _DOUBLE:
        return _as_is(name, it, "DOUBLE")
    if code == _DATE:
        return from_text(name, text, "DATE")
    if code in _MOMENTS:
        return from_text(name, moment, "TIMESTAMP")
    if code in (_TIME, _JSON_OF_MYSQL):
        return _as_is(name, text, "STRING")
    if code in _TEXTS:
        if field.charset == _BINARY_CHARSET and code != _NULL:
            return _as_is(name, it, "BINARY")
        return _as_is(name, text if code == _CHAR else it, "STRING")
    return None


def quoted(name: str) -> str:
    """Return a name as MariaDB quotes it."""
    return "`" + name.replace("`", "``") + "`"


def _as_is(name: str, sql: str, kind: str) -> Column:
    return Column(name, sql, kind, kind)
