"""Columns that are not main's: what each policy makes of each kind of change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.definition.evolution import Evolution, evolved
from airflow_mv_provider.core.definition.schema import Column
from airflow_mv_provider.exceptions import SchemaMismatchError

STRUCT = {"type": "struct", "fields": [{"name": "a", "type": "long"}]}
WIDER_STRUCT = {"type": "struct", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "long"}]}


def columns(**kinds):
    return tuple(Column(name, kind) for name, kind in kinds.items())


MAIN = columns(id="long", p="integer", v="string", n="integer")
REFUSED = None
WIDENED = Evolution(columns(id="long", p="integer", v="string", n="long"), ("column 'n' widened from integer to long",))


def decided(source, policy, main=MAIN, on_lost="fail"):
    return evolved("orders", source, main, policy, ("id", "p"), on_lost)


@pytest.mark.parametrize("policy", ["fail", "ignore", "add", "evolve"])
def test_the_same_columns_are_main_s_whatever_their_order(policy):
    assert decided(MAIN[::-1], policy) == Evolution(MAIN)


ADDED = Evolution((*MAIN, Column("x", "double")), ("column 'x', double, added",))


@pytest.mark.parametrize(
    ("source", "ignore", "evolve"),
    [
        ((*MAIN, Column("x", "double")), Evolution(MAIN, ("column 'x', double, left out",)), ADDED),
        (  # missing
            columns(id="long", p="integer", v="string"),
            Evolution(MAIN[:3], ("column 'n' is not in the source: kept as it is",)),
            REFUSED,
        ),
        (  # renamed: one is missing, one is added
            columns(id="long", p="integer", v="string", m="integer"),
            Evolution(MAIN[:3], ("column 'n' is not in the source: kept as it is", "column 'm', integer, left out")),
            REFUSED,
        ),
        (columns(id="long", p="integer", v="string", n="long"), REFUSED, WIDENED),
        (columns(id="long", p="integer", v="string", n="short"), Evolution(MAIN), Evolution(MAIN)),  # narrower
        (columns(id="integer", p="byte", v="string", n="byte"), Evolution(MAIN), Evolution(MAIN)),
        (columns(id="long", p="long", v="string", n="integer"), REFUSED, REFUSED),  # a partition column
        (columns(id="decimal(20,0)", p="integer", v="string", n="integer"), REFUSED, REFUSED),
        (columns(id="long", p="integer", v="long", n="integer"), REFUSED, REFUSED),
        (columns(id="long", p="integer", v="string", n="string"), REFUSED, REFUSED),
        (columns(id="long", p="integer", v="string", n="double"), REFUSED, REFUSED),
        (columns(id="long", p="integer", v="string", N="integer"), REFUSED, REFUSED),  # another spelling
    ],
    ids=str,
)
def test_each_kind_of_change(source, ignore, evolve):
    add = REFUSED if evolve is WIDENED else evolve
    for policy, expected in (("fail", REFUSED), ("ignore", ignore), ("add", add), ("evolve", evolve)):
        if policy == "fail" or expected is REFUSED:
            with pytest.raises(SchemaMismatchError) as caught:
                decided(source, policy)
            assert caught.value.facts["column"]
        else:
            assert decided(source, policy) == expected


@pytest.mark.parametrize(
    ("source", "policy", "way"),
    [
        ((*MAIN, Column("x", "double")), "fail", "`schema_policy: add`."),
        (MAIN[:3], "fail", "`schema_policy: add` and `on_lost_column: keep` or `drop`."),
        (columns(id="long", p="integer", v="string", n="long"), "add", "`schema_policy: evolve`."),
        (columns(id="long", p="integer", n="long"), "ignore", "`schema_policy: evolve` and `on_lost_column: keep` or"),
        (columns(id="long", p="long", v="string", n="integer"), "fail", None),
        (columns(id="long", p="integer", v="string", n="string"), "evolve", None),
    ],
    ids=str,
)
def test_who_is_refused_is_told_which_policy_is_not(source, policy, way):
    with pytest.raises(SchemaMismatchError) as caught:
        decided(source, policy)

    assert (f"change the table's columns with {way}" if way else "match the table's.") in caught.value.advice
    assert ("schema_policy" in caught.value.advice) == (way is not None)


@pytest.mark.parametrize("policy", ["add", "evolve"])
def test_a_column_that_the_source_has_lost_is_kept_or_dropped(policy):
    source = (*columns(id="long", p="integer", v="string"), Column("m", "integer"))

    kept, dropped = (decided(source, policy, on_lost=on_lost) for on_lost in ("keep", "drop"))

    assert kept.columns == dropped.columns == (*MAIN[:3], Column("m", "integer"))
    assert kept.notes == ("column 'n' is not in the source: kept as it is", "column 'm', integer, added")
    assert dropped.notes == ("column 'n' is not in the source: dropped", "column 'm', integer, added")


@pytest.mark.parametrize(
    ("old", "new", "is_widened"),
    [
        *[("byte", "short", True), ("short", "long", True), ("float", "double", True), ("long", "integer", False)],
        *[("decimal(5,2)", "decimal(7,2)", True), ("decimal(5,2)", "decimal(7,4)", True)],
        *[("decimal(5,2)", "decimal(6,4)", False), ("decimal(5,2)", "decimal(5,1)", False)],
        *[("long", "double", False), ("integer", "decimal(20,0)", False), ("date", "timestamp", False)],
        *[("string", "binary", False), (STRUCT, WIDER_STRUCT, False), ("boolean", "integer", False)],
    ],
    ids=str,
)
def test_what_is_wider(old, new, is_widened):
    main, source = columns(id="long", n=old), columns(id="long", n=new)
    if is_widened:
        assert evolved("orders", source, main, "evolve", ("id",)).columns == source
        with pytest.raises(SchemaMismatchError):
            evolved("orders", source, main, "add", ("id",))
        return
    try:
        found = evolved("orders", source, main, "evolve", ("id",))
    except SchemaMismatchError:
        return
    assert found == Evolution(main), "only a narrower type may be read as main's"


KINDS = st.sampled_from(
    ["byte", "short", "integer", "long", "float", "double", "decimal(5,2)", "decimal(9,4)", "string"]
)


@given(KINDS, KINDS, st.sampled_from(["ignore", "add", "evolve"]))
def test_no_type_narrows_and_after_it_nothing_is_left_to_do(old, new, policy):
    main, source = columns(id="long", v=old), columns(id="long", v=new)
    try:
        found = evolved("orders", source, main, policy, ("id",))
    except SchemaMismatchError:
        return

    assert evolved("orders", source, found.columns, policy, ("id",)) == Evolution(found.columns)
    if found.columns[1].type != old:
        with pytest.raises(SchemaMismatchError):
            evolved("orders", main, found.columns, "fail", ())
        assert evolved("orders", main, found.columns, policy, ("id",)).columns == found.columns
