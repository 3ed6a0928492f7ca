"""How columns travel from a database to Spark without a change of any value.

Spark rounds some types and replaces some values in silence: a numeric without a precision has 18 decimals, an infinite
date is in the year 9999, a local timestamp is shifted by the JVM's time zone. So each column is selected as an
expression of the database, under a type that travels exactly, and converted back by Spark. A value for which that is
impossible raises `INEXACT`, in the database or in Spark; `spark.causes.databases` translates both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.spark.causes.databases import INEXACT

_IT = "{it}"
_MAX_SHOWN = 40
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


def marked(name: str) -> str:
    """Return the beginning of the message for a value of this column; safe inside a quoted text of SQL."""
    shown = re.sub(r"[^\w.-]", "?", name)[:100]
    return f"{INEXACT} {shown} "


def from_text(name: str, sql: str, kind: str) -> Column:
    """Return a column that travels as text and that Spark converts; a value that does not fit exactly raises."""
    if kind == "STRING":
        return Column(name, sql, "STRING", kind)
    fits = f"try_cast({_IT} AS {kind}) IS NOT NULL"
    if found := _DECIMAL.fullmatch(kind):
        digits, decimals = int(found.group(1)) - int(found.group(2)), int(found.group(2))
        fits += f" AND {_IT} RLIKE '^[+-]?0*[0-9]{{0,{digits}}}([.][0-9]{{0,{decimals}}}0*)?$'"
    if kind == "DATE":  # a time of day would be cut off
        fits += f" AND {_IT} RLIKE '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}$'"
    if kind == "TIMESTAMP":  # a time of day alone would be today's, and what is shorter than a microsecond cut off
        fits += f" AND {_IT} RLIKE '^[0-9]{{4}}-' AND NOT {_IT} RLIKE '[.][0-9]{{6}}[0-9]*[1-9]'"
    raises = f"raise_error(concat('{marked(name)}', left({_IT}, {_MAX_SHOWN})))"
    finish = f"CASE WHEN {_IT} IS NULL THEN NULL WHEN {fits} THEN CAST({_IT} AS {kind}) ELSE {raises} END"
    return Column(name, sql, "STRING", kind, finish)
