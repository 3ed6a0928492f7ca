"""How columns travel from a database to Spark without a change of any value.

Spark rounds some types and replaces some values in silence: a numeric without a precision has 18 decimals, an infinite
date is in the year 9999, a local timestamp is shifted by the JVM's time zone. So each column is selected as an
expression of the database, under a type that travels exactly, and converted back by Spark. A value for which that is
impossible raises `INEXACT`, in the database or in Spark; `spark.causes.databases` translates both.

A text whose bytes the database has not checked travels as these bytes: every JDBC driver decodes by replacing what is
no character, after which two texts are one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.spark.causes.databases import INEXACT, NOT_TEXT

_IT = "{it}"
_MAX_SHOWN, _MAX_SHOWN_BYTES = 40, 20
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


@dataclass(frozen=True, slots=True)
class Column:
    """One column on its way.

    sql    : the database's expression for it
    moved  : Spark's type for that expression
    kind   : the column's type in the end
    finish : Spark's expression from `moved` to `kind`, in which {it} stands for the column
    """

    name: str
    sql: str
    moved: str
    kind: str
    finish: str = _IT

    def finished(self, alias: str) -> str:
        """Return Spark's expression for the column, which the database calls `alias`."""
        return f"{self.finish.replace(_IT, alias)} AS {quoted(self.name)}"


def marked(name: str, what: str = INEXACT) -> str:
    """Return the beginning of the message for a value of this column; safe inside a quoted text of SQL."""
    shown = re.sub(r"[^\w.-]", "?", name)[:100]
    return f"{what} {shown} "


def from_text(name: str, sql: str, kind: str, encoding: str | None = None) -> Column:
    """Return a column that travels as text and that Spark converts; a value that does not fit exactly raises.

    Args:
        encoding: Of the bytes that `sql` is, by Java's name; None if `sql` is a text that the database has checked.
    """
    it = _IT if encoding is None else _decoded(name, encoding)
    moved = "STRING" if encoding is None else "BINARY"
    if kind == "STRING":
        return Column(name, sql, moved, kind, it)
    fits = f"try_cast({it} AS {kind}) IS NOT NULL"
    if found := _DECIMAL.fullmatch(kind):
        digits, decimals = int(found.group(1)) - int(found.group(2)), int(found.group(2))
        is_plain = f"{it} RLIKE '^[+-]?0*[0-9]{{0,{digits}}}([.][0-9]{{0,{decimals}}}0*)?$'"
        # As databases print large and small FLOATs: the decimal has to read back as the same number.
        is_float = f"{it} RLIKE '^-?[0-9]([.][0-9]{{1,16}})?[eE][+-]?[0-9]{{1,2}}$'"
        is_same = f"CAST(try_cast({it} AS {kind}) AS DOUBLE) = try_cast({it} AS DOUBLE)"
        fits += f" AND ({is_plain} OR ({is_float} AND {is_same}))"
    if kind == "DOUBLE":  # a number that is too large would be infinite, one that is too small zero, and 1d is none
        is_number = f"{it} RLIKE '^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$'"
        is_finite = f"abs(try_cast({it} AS DOUBLE)) < double('infinity')"
        is_kept = f"(try_cast({it} AS DOUBLE) <> 0 OR {it} RLIKE '^[^1-9eE]*([eE]|$)')"
        is_word = f"{it} RLIKE '(?i)^([+-]?inf(inity)?|nan)$'"
        fits += f" AND ({is_number} AND {is_finite} AND {is_kept} OR {is_word})"
    if kind == "DATE":  # a time of day would be cut off
        fits += f" AND {it} RLIKE '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}$'"
    if kind == "TIMESTAMP":  # a month would be its first day, and what is shorter than a microsecond would be cut off
        is_moment = f"{it} RLIKE '^[0-9]{{4}}-[0-9]{{1,2}}-[0-9]{{1,2}}([ T].*)?$'"
        fits += f" AND {is_moment} AND NOT {it} RLIKE '[.][0-9]{{6}}[0-9]*[1-9]'"
    raises = f"raise_error(concat('{marked(name)}', left({it}, {_MAX_SHOWN})))"
    finish = f"CASE WHEN {it} IS NULL THEN NULL WHEN {fits} THEN CAST({it} AS {kind}) ELSE {raises} END"
    return Column(name, sql, moved, kind, finish)


def _decoded(name: str, encoding: str) -> str:
    """Return Spark's expression for the text of some bytes; bytes that are none raise."""
    if encoding != "UTF-8":
        return f"decode({_IT}, '{encoding}')"
    text = f"CAST({_IT} AS STRING)"
    raises = f"raise_error(concat('{marked(name, NOT_TEXT)}', hex(left({_IT}, {_MAX_SHOWN_BYTES}))))"
    return f"CASE WHEN {_IT} IS NULL THEN NULL WHEN is_valid_utf8({text}) THEN {text} ELSE {raises} END"
