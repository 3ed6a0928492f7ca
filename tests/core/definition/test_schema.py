"""Columns: which can be stored, compared, be a key, and whether two schemas are the same."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.definition.evolution import evolved
from airflow_mv_provider.core.definition.schema import (
    Column,
    are_mapped,
    check_same,
    check_source,
    columns_of,
    fingerprint,
    is_comparable,
)
from airflow_mv_provider.exceptions import (
    InvalidIdentifierError,
    KeyColumnError,
    NotComparableError,
    SchemaMismatchError,
)

MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}


def array(element):
    return {"type": "array", "elementType": element, "containsNull": True}


def struct(**fields):
    return {"type": "struct", "fields": [field(name, kind) for name, kind in fields.items()]}


def field(name, kind, nullable=True):
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {"comment": "for people"}}


def columns(**kinds):
    return [Column(name, kind) for name, kind in kinds.items()]


def check(kinds, key=("id",), partition_by=()):
    given = [Column(name, kind) for name, kind in kinds] if isinstance(kinds, list) else columns(**kinds)
    check_source("orders", given, key, partition_by)


COMPARABLE = [
    *("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp"),
    *("timestamp_ntz", "decimal(1,0)", "decimal(38,18)", array("double"), array(array("long")), struct(a="long")),
    *(struct(a=array(struct(b="date", c="decimal(3,1)"))), struct()),
]
NOT_COMPARABLE = [
    *("variant", "interval year to month", "interval day to second", "void", "time(6)", "object", "LONG", ""),
    *(MAP, array(MAP), struct(a="long", b=MAP), struct(a=array(struct(b="variant"))), {"type": "udt"}),
]


def test_partitions_by_every_column_leave_none_for_the_files():
    with pytest.raises(KeyColumnError, match="every column") as caught:
        check({"id": "long", "day": "date"}, ("id",), ("day", "id"))

    assert "fewer" in caught.value.advice
    check({"id": "long", "day": "date", "v": "string"}, ("id",), ("day", "id"))


def test_sensitive_column_that_is_misspelt_is_refused_since_it_would_hide_nothing():
    given = columns(id="long", email="string")

    check_source("orders", given, ("id",), (), ("email",))
    with pytest.raises(SchemaMismatchError, match="sensitive column 'Email' is not among") as caught:
        check_source("orders", given, ("id",), (), ("Email",))
    assert "what it does not name is shown" in caught.value.advice


@pytest.mark.parametrize("kind", COMPARABLE, ids=str)
def test_type_with_equality_is_comparable(kind):
    assert is_comparable(kind)
    check({"id": "long", "v": kind})


@pytest.mark.parametrize(
    "field",
    [
        {"name": "v", "type": "string", "metadata": {"__COLLATIONS": {"v": "icu.UNICODE_CI"}}},
        {"name": "v", "type": array("string"), "metadata": {"__COLLATIONS": {"v.element": "icu.UNICODE_CI"}}},
        {
            "name": "v",
            "type": {
                "type": "struct",
                "fields": [{"name": "a", "type": "string", "metadata": {"__COLLATIONS": {"a": "icu.UNICODE_CI"}}}],
            },
        },
    ],
    ids=["column", "element", "field"],
)
def test_text_with_a_collation_is_refused_by_its_columns_name(field):
    """As PySpark writes it into a schema: the type is a string's, and what makes texts equal stands beside it."""
    found = columns_of({"fields": [{"name": "id", "type": "long"}, field]})

    with pytest.raises(
        NotComparableError, match=r"orders: column 'v' is of type (string collate icu.UNICODE_CI|struct)"
    ):
        check_source("orders", found, ["id"], [])


@pytest.mark.parametrize("kind", NOT_COMPARABLE, ids=str)
def test_type_without_equality_is_refused_by_name(kind):
    with pytest.raises(NotComparableError) as caught:
        check({"id": "long", "v": kind})

    shown = kind if isinstance(kind, str) else kind["type"]
    assert caught.value.message == f"orders: column 'v' is of type {shown}."
    assert caught.value.facts == {"column": "v"}


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        *(("key", kind) for kind in ("float", "double", array("long"), struct(a="long"))),
        *(("partition", kind) for kind in ("float", "double", "binary", array("long"), struct(a="long"))),
    ],
    ids=str,
)
def test_type_that_identifies_nothing_is_no_key_and_no_partition(role, kind):
    key, partition_by = (["id", "x"], []) if role == "key" else (["id"], ["x"])

    with pytest.raises(KeyColumnError, match=f"orders: {role} column 'x' is of type .* cannot identify rows"):
        check({"id": "long", "x": kind}, key, partition_by)


@pytest.mark.parametrize("kind", ["string", "binary", "date", "timestamp", "decimal(10,2)", "boolean", "timestamp_ntz"])
def test_other_scalars_may_be_keys(kind):
    check({"id": kind})


@pytest.mark.parametrize(("key", "partition_by", "role"), [(["no"], [], "key"), (["id"], ["no"], "partition")])
def test_missing_column_is_named_with_those_there_are(key, partition_by, role):
    with pytest.raises(KeyColumnError) as caught:
        check({"id": "long", "v": "string"}, key, partition_by)

    assert caught.value.message == f"orders: {role} column 'no' is not among id, v."


def test_key_in_another_case_is_missing():
    with pytest.raises(KeyColumnError, match="'ID' is not among id"):
        check({"id": "long"}, ["ID"])


def test_long_list_of_columns_is_cut():
    with pytest.raises(KeyColumnError, match=r"c18, c19, \.\.\.\."):
        check({f"c{i}": "long" for i in range(100)}, ["no"])


@pytest.mark.parametrize(
    "kinds",
    [
        [("id", "long"), ("ID", "string")],
        [("id", "long"), ("v", "string"), ("v", "string")],
        [("id", "long"), ("Größe", "long"), ("GRÖSSE", "long"), ("grÖße", "long")],
    ],
)
def test_two_columns_of_one_name_are_refused(kinds):
    with pytest.raises(SchemaMismatchError, match="have the same name") as caught:
        check(kinds)

    assert "in the source" in caught.value.advice, "a name that stands for two columns cannot be used in `select`"


@pytest.mark.parametrize("name", ["", " ", "a`b", "a\x00b"])
def test_illegal_column_name_is_refused(name):
    with pytest.raises(InvalidIdentifierError):
        check([("id", "long"), (name, "long")])


@pytest.mark.parametrize(
    "kind",
    [
        struct(**{"a`": "long"}),
        struct(a=struct(**{"\r": "long"})),
        array(struct(**{"": "long"})),
        array(array(struct(a=struct(**{"`": "long"})))),
    ],
    ids=str,
)
def test_illegal_name_inside_a_column_is_refused_too(kind):
    with pytest.raises(InvalidIdentifierError):
        check({"id": "long", "v": kind})


@pytest.mark.parametrize(
    ("kinds", "is_mapped"),
    [
        ({"id": "long", "s": struct(a=array("long"))}, False),
        ({"a b": "long"}, True),
        ({"id": "long", "s": struct(**{"a;": "long"})}, True),
        ({"s": array(array(struct(a=struct(**{"b=": "long"}))))}, True),
    ],
    ids=str,
)
def test_names_that_delta_has_to_map_are_found_all_the_way_down(kinds, is_mapped):
    assert are_mapped(columns(**kinds)) is is_mapped


def test_fingerprint_tells_names_types_and_order_apart():
    lists = [{"a": "long", "b": "long"}, {"a": "long", "c": "long"}, {"b": "long", "a": "long"}, {"a": "long"}]
    lists += [{"a": "long", "b": "integer"}, {"a": "long", "b": struct(x="long")}, {"a": "long", "b": struct(y="long")}]

    assert len({fingerprint(columns(**kinds)) for kinds in lists}) == len(lists)
    assert fingerprint(columns(**lists[-1])) == fingerprint(columns(**lists[-1]))


@pytest.mark.parametrize("kind", [struct(a="long", A="long"), struct(s=struct(b="long", B="long"))], ids=str)
def test_two_fields_of_one_name_inside_a_column_are_refused(kind):
    with pytest.raises(SchemaMismatchError, match=r"column 'v(\.s)?' has two fields"):
        check({"id": "long", "v": kind})


def test_same_field_name_in_different_structs_is_fine():
    check({"id": "long", "v": struct(id="long", v=struct(id="long"))})


# -- two schemas -----------------------------------------------------------------------------------------------------

MAIN = columns(id="long", v="string", s=struct(a="long", b=array("date")))


@pytest.mark.parametrize(
    ("desired", "problem"),
    [
        ([*MAIN, Column("w", "long")], "the source has column 'w', the table does not."),
        (MAIN[:2], "the table has column 's', the source does not."),
        ([MAIN[0], Column("w", "string"), MAIN[2]], "the source has column 'w', the table does not."),
        ([MAIN[0], Column("V", "string"), MAIN[2]], "the source has column 'V', the table does not."),
        ([Column("id", "integer"), *MAIN[1:]], "column 'id' is integer in the source and long in the table."),
        ([Column("id", "decimal(3,2)"), *MAIN[1:]], "column 'id' is decimal(3,2) in the source and long in the table."),
        (
            [*MAIN[:2], Column("s", struct(b=array("date"), a="long"))],
            "column 's' is struct<b: array<date>, a: long> in the source"
            " and struct<a: long, b: array<date>> in the table.",
        ),
        (
            [*MAIN[:2], Column("s", MAP)],
            "column 's' is map in the source and struct<a: long, b: array<date>> in the table.",
        ),
    ],
)
def test_first_difference_is_named(desired, problem):
    with pytest.raises(SchemaMismatchError) as caught:
        check_same("orders", desired, MAIN)

    assert caught.value.message == f"orders: {problem}"


def test_both_sides_have_the_names_that_are_given():
    with pytest.raises(SchemaMismatchError, match="a file has column 'x', the schema does not"):
        check_same("source", [*MAIN, Column("x", "long")], MAIN, names=("a file", "the schema"))


def test_order_of_columns_nullability_and_comments_do_not_matter():
    desired = columns_of({"fields": [field("v", "string"), field("s", struct(a=array("long"))), field("id", "long")]})
    main = columns_of(
        {
            "fields": [
                {"name": "id", "type": "long", "nullable": False, "metadata": {}},
                {
                    "name": "s",
                    "type": {
                        "type": "struct",
                        "fields": [
                            {
                                "name": "a",
                                "type": {"type": "array", "elementType": "long", "containsNull": False},
                                "nullable": False,
                                "metadata": {},
                            }
                        ],
                    },
                    "nullable": False,
                    "metadata": {},
                },
                {"name": "v", "type": "string", "nullable": True, "metadata": {}},
            ]
        }
    )

    check_same("orders", desired, main)


class Counted(str):
    """A name that counts how often it is compared with another."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__

    def lower(self) -> Counted:
        Counted.comparisons += 1
        return Counted(str.lower(self))


def test_thousands_of_columns_are_not_compared_with_each_other():
    Counted.comparisons, number = 0, 500
    main = [Column(Counted(f"c{n}"), "long") for n in range(number)]
    source = [Column(Counted(column.name), "long") for column in main]
    more = [Column(Counted(f"more{n}"), "long") for n in range(number)]

    check_source("orders", [*source, *more], ("c0",), ())
    evolved("orders", [*source, *more], main, "add", ("c0",))

    assert Counted.comparisons < 20 * number
