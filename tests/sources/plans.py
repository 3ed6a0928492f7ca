"""Plans as this version of Spark explains them, for the decisions that `sources/query/spark_plan` takes from them.

    python -m tests.sources.plans     asks Spark again and writes plans_of_spark.json

`tests/engine/test_query_plans.py` compares the file with Spark, `test_query_plan.py` the decisions with the file.
Ids are numbered in order of appearance, and the warehouse is /w.
"""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow_mv_provider.sources.query.spark_plan import pinned_sql

FILE = Path(__file__).with_name("plans_of_spark.json")
_ANALYZED, _OPTIMIZED = "== Analyzed Logical Plan ==\n", "\n\n== Optimized Logical Plan =="

# Queries over the Delta table `o` (id BIGINT, c STRING, t TIMESTAMP, d DATE), the only input.
QUERIES = {
    "one input": "SELECT * FROM o",
    "ends in a comment": "SELECT id FROM o -- all of it",
    "join with a range": "SELECT o.id FROM o LEFT JOIN range(3) r ON o.id = r.id",
    "self join": "SELECT a.id FROM o a JOIN o b USING (id)",
    "scalar subquery": "SELECT (SELECT max(id) FROM o) AS x",
    "exists": "SELECT id FROM o WHERE EXISTS (SELECT 1 FROM o p WHERE p.id = o.id + 1)",
    "union": "SELECT id FROM o UNION ALL SELECT id FROM o",
    "values": "SELECT id FROM o JOIN (VALUES (1), (2)) v(n) ON o.id = v.n",
    "text with line breaks": "SELECT regexp_replace(c, '\n+- Relation x', 'y') AS c FROM o",
    "text like a plan": "SELECT 'View (`tv`, [id])' AS c FROM o",
    "common table expression": "WITH a AS (SELECT id FROM o) SELECT * FROM a JOIN a b USING (id)",
    "recursion": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
    "lateral": "SELECT id, x FROM o, LATERAL (SELECT o.id + 1 AS x)",
    "explode": "SELECT id, e FROM o LATERAL VIEW explode(array(1, 2)) AS e",
    "window": "SELECT id, row_number() OVER (PARTITION BY c ORDER BY id) AS n FROM o",
    "pivot": "SELECT * FROM (SELECT id, c FROM o) PIVOT (count(id) FOR c IN ('a', 'b'))",
    "sample": "SELECT * FROM o TABLESAMPLE (10 PERCENT)",
    "filter": "SELECT id, upper(c) AS c FROM o WHERE d > DATE'2026-01-01' AND id IN (1, 2)",
    "filter in a common table expression": "WITH a AS (SELECT * FROM o WHERE id > 1) SELECT a.id FROM a WHERE c <> 'x'",
    "filter by a subquery": "SELECT id FROM o WHERE id IN (SELECT id + 1 FROM o)",
    "today": "SELECT id, current_date() AS d FROM o",
    "today by a cast": "SELECT id, CAST('today' AS DATE) AS d FROM o",
    "today between": "SELECT id FROM o WHERE d BETWEEN 'yesterday' AND 'today'",
    "hour of a text": "SELECT extract(HOUR FROM '12:30') AS h FROM o",
    "the catalog's table": "SELECT * FROM elsewhere",
    "the catalog's table in a subquery": "SELECT * FROM o WHERE id IN (SELECT id FROM elsewhere)",
    "view": "SELECT * FROM a_view",
    "temporary view": "SELECT * FROM a_temporary_view",
    "SQL function": "SELECT id, a_function() AS f FROM o",
    "Delta table by path": "SELECT * FROM delta.`{root}/elsewhere`",
    "files by path": "SELECT * FROM parquet.`{root}/files`",
    "shadowed by a common table expression": "WITH o AS (SELECT * FROM elsewhere) SELECT * FROM o",
}
# Projections of `o`.
PROJECTIONS = {
    "columns": ("id", "upper(c) AS c"),
    "star": ("*",),
    "renamed": ("id AS today", "c AS now"),
    "column named today cast": ("CAST(today AS DATE) AS d",),
    "window function": ("id", "row_number() OVER (ORDER BY id) AS n"),
    "aggregate": ("max(id) AS id",),
    "generator": ("id", "explode(array(1, 2)) AS e"),
    "subquery": ("id", "(SELECT max(id) FROM elsewhere) AS x"),
    "today in nvl": ("nvl(d, 'today') AS d",),
    "today in nested nvl": ("nvl(date_add(d, 1), 'today') AS d",),
    "today in decode": ("decode(d, 'today', 1) AS x",),
    "today by try_cast": ("try_cast('today' AS DATE) AS d",),
    "time of day": ("try_cast('12:30' AS TIMESTAMP) AS t",),
    "time of day as a text": ("nvl(c, '12:30') AS c",),
    "the word now": ("concat(c, ' now') AS c",),
    "hour of a column": ("extract(HOUR FROM t) AS h",),
    "part of now": ("date_part('HOUR', 'now') AS h",),
    "encrypted": ("aes_encrypt(c, '0000111122223333') AS c",),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """One analyzed plan, as EXPLAIN EXTENDED shows it between two headings."""

    name: str
    sql: str
    tree: str

    @property
    def explained(self) -> str:
        return f"{_ANALYZED}{self.tree}{_OPTIMIZED}\n"


def recorded() -> dict[str, Plan]:
    """The plans of the file, by name."""
    return {each["name"]: Plan(**each) for each in json.loads(FILE.read_text(encoding="utf-8"))}


def asked(spark: Any, root: Path) -> list[Plan]:
    """Ask Spark for all plans; `root` is an empty folder."""
    rows = spark.range(3).selectExpr(
        "id", "string(id) AS c", "timestamp_seconds(id) AS t", "date'2026-01-01' AS d", "'x' AS today"
    )
    for path in ("o", "elsewhere"):
        rows.write.format("delta").save(f"{root}/{path}")
    rows.write.parquet(f"{root}/files")
    made = (
        f"TABLE elsewhere USING delta LOCATION '{root}/elsewhere'",
        "VIEW a_view AS SELECT * FROM elsewhere",
        "TEMPORARY VIEW a_temporary_view AS SELECT * FROM range(3)",
        "FUNCTION a_function() RETURNS BIGINT RETURN (SELECT max(id) FROM elsewhere)",
    )
    try:
        for each in made:
            spark.sql(f"CREATE {each}")
        pin = f"delta.`{root}/o` VERSION AS OF 0"
        queries = {
            name: pinned_sql(sql.replace("{root}", str(root)), {"o": f"SELECT * FROM {pin}"})
            for name, sql in QUERIES.items()
        }
        projections = {name: f"SELECT {', '.join(select)}\nFROM {pin}" for name, select in PROJECTIONS.items()}
        return [Plan(name, *_asked(spark, sql, root)) for name, sql in (queries | projections).items()]
    finally:
        for each in ("FUNCTION a_function", "VIEW a_temporary_view", "VIEW a_view", "TABLE elsewhere"):
            spark.sql(f"DROP {each.split()[0]} IF EXISTS {each.split()[1]}")


def _asked(spark: Any, sql: str, root: Path) -> tuple[str, str]:
    explained = spark.sql(f"EXPLAIN EXTENDED {sql}").collect()[0][0]
    tree = explained.partition(_ANALYZED)[2].partition(_OPTIMIZED)[0]
    return sql.replace(str(root), "/w"), _numbered(tree.replace(f"file:{root}", "/w").replace(str(root), "/w"))


def _numbered(tree: str) -> str:
    """Return a plan with its ids in order of appearance: Spark counts them through the session."""
    for id in (r"#(\d+)", r"CTERelationDef (\d+)", r"CTERelationRef (\d+)", r"UnionLoop(?:Ref)? (\d+)"):
        seen: dict[str, int] = {}
        tree = re.sub(id, lambda found, seen=seen: _renumbered(found, seen), tree)  # type: ignore[misc]
    return tree


def _renumbered(found: re.Match[str], seen: dict[str, int]) -> str:
    number = str(seen.setdefault(found[1], len(seen)))
    return found[0].removesuffix(found[1]) + number


def main() -> None:
    """Write the file."""
    from airflow_mv_provider.spark.session import local_session

    spark = local_session("plans")
    spark.conf.set("spark.sql.debug.maxToStringFields", "1000000")
    with tempfile.TemporaryDirectory() as folder:
        plans = [asdict(plan) for plan in asked(spark, Path(folder))]
    FILE.write_text(json.dumps(plans, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
