"""A query is run over its inputs alone: how they are pinned in its SQL, and what a plan says that it reads beside."""

from __future__ import annotations

import pytest

from airflow_mv_provider.sources.query.plan import changing_value, pinned_sql, unpinned_relation

# As Spark 4.2 explains them, under the inputs that come first in every plan.
PINNED = """
:- CTERelationDef 0, false
:  +- SubqueryAlias _mv_pinned_o
:     +- Project [id#1L, c#2L]
:        +- SubqueryAlias spark_catalog.delta.`/w/raw/o`
:           +- Relation spark_catalog.delta.`/w/raw/o`[id#1L,c#2L] parquet
:- CTERelationDef 1, false
:  +- SubqueryAlias o
:     +- Project [id#1L, c#2L]
:        +- SubqueryAlias _mv_pinned_o
:           +- CTERelationRef 0, true, [id#1L, c#2L], false, false"""


def explained(tree: str, parsed: str = "'Project [*]") -> str:
    tree = "WithCTE" + PINNED + tree.rstrip()
    return (
        f"== Parsed Logical Plan ==\n{parsed}\n\n== Analyzed Logical Plan ==\nid: bigint\n{tree}\n\n"
        "== Optimized Logical Plan ==\nRelation [id#1L] parquet\n\n== Physical Plan ==\nScan"
    )


def test_inputs_are_defined_in_front_of_the_query():
    sql = pinned_sql(" SELECT * FROM o -- all\n; ", {"o": "SELECT 1 AS id"})

    assert sql == (
        "WITH `_mv_pinned_o` AS (SELECT 1 AS id), `o` AS (SELECT * FROM `_mv_pinned_o`) "
        "SELECT * FROM (\nSELECT * FROM o -- all\n\n)"
    )


@pytest.mark.parametrize(
    "tree",
    [
        """
+- Project [id#3L]
   +- SubqueryAlias __auto_generated_subquery_name
      +- Join LeftOuter, (c#4L = id#3L)
         :- SubqueryAlias o
         :  +- CTERelationRef 1, true, [id#3L, c#4L], false, false
         +- Range (0, 3, step=1)""",
        """
+- Project [scalar-subquery#6 [] AS x#7L]
   :  +- Aggregate [max(id#3L) AS max(id)#8L]
   :     +- SubqueryAlias o
   :        +- CTERelationRef 1, true, [id#3L, c#4L], false, false
   +- OneRowRelation""",
        """
+- Project [regexp_replace(v#3,
, Relation x, 1) AS r#4]
   +- LocalRelation [v#3]""",
    ],
    ids=["join", "subquery", "text with a line break"],
)
def test_query_over_its_inputs_reads_nothing_else(tree):
    assert unpinned_relation(explained(tree)) is None


@pytest.mark.parametrize(
    ("tree", "named"),
    [
        (
            """
+- Project [id#3L]
   +- SubqueryAlias spark_catalog.default.t
      +- Relation spark_catalog.default.t[id#3L] parquet""",
            "spark_catalog.default.t",
        ),
        (
            """
+- SubqueryAlias tv
   +- View (`tv`, [id#3L])
      +- Range (0, 3, step=1)""",
            "tv",
        ),
        (
            """
+- SubqueryAlias __auto_generated_subquery_name
   +- Relation [id#3L] parquet""",
            "something without a name (Relation parquet)",
        ),
        (
            """
+- Project [scalar-subquery#6 [] AS x#7L]
   :  +- Aggregate [max(id#3L) AS max(id)#8L]
   :     +- SubqueryAlias tv
   :        +- LogicalRDD [id#3L], false
   +- SubqueryAlias o
      +- CTERelationRef 1, true, [id#3L, c#4L], false, false""",
            "tv",
        ),
        (
            """
:- CTERelationDef 2, false
:  +- SubqueryAlias o
:     +- Relation [id#3L] csv
+- SubqueryAlias o
   +- CTERelationRef 2, true, [id#3L], false, false""",
            "o",
        ),
        (
            """
+- Union false, false
   :- SubqueryAlias o
   :  +- CTERelationRef 1, true, [id#3L], false, false
   +- Project [id#4L]
      +- DataSourceV2Relation [id#4L] other""",
            "something without a name (DataSourceV2Relation other)",
        ),
    ],
    ids=["table", "view", "files", "subquery", "shadowed", "unknown kind"],
)
def test_what_is_no_input_is_named(tree, named):
    assert unpinned_relation(explained(tree)) == named


@pytest.mark.parametrize(
    "text",
    [
        "",
        "== Physical Plan ==\nScan",
        "== Analyzed Logical Plan ==\norg.apache.spark.sql.AnalysisException: [TABLE_OR_VIEW_NOT_FOUND]",
        "== Analyzed Logical Plan ==\nid: bigint\n+- Range (0, 3, step=1)",
    ],
)
def test_plan_that_is_not_understood_is_not_believed(text):
    assert unpinned_relation(text) is not None


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("cast(today as date)", "today"),
        ("try_cast(today as date)", "today"),
        ("try_cast(12:30 as timestamp)", "12:30"),
        ("between(t#200, yesterday, today)", "yesterday"),
        ("nvl(d#360, today)", "today"),
        ("nvl(date_add(d#360, 1), today)", "today"),
        ("decode(d#450, today, 1)", "today"),
        ("date_part(HOUR, now)", "now"),
        ("extract(HOUR, 12:30)", "12:30"),
        ("nvl(today#7, s#8)", None),
        ("nvl(s#8, 12:30)", None),
        ("concat(s#8,  now)", None),
        ("extract(HOUR, t#9)", None),
        ("try_cast(today#7 as date)", None),
    ],
)
def test_what_changes_from_day_to_day_is_told_wherever_it_is_cast(column, told):
    plan = f"== Analyzed Logical Plan ==\nx: date\nProject [{column} AS x#11]\n+- OneRowRelation"

    assert changing_value(plan) == told
