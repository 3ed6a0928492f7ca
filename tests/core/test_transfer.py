"""Which loads and exports are possible, and what a manifest says."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.definition.table import parse_table
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.core.transfer.export import (
    ExportedFile,
    ExportPlace,
    Manifest,
    already_exported,
    export_root,
    manifest_of,
)
from airflow_mv_provider.core.transfer.load import definition_of_load, request_of_load
from airflow_mv_provider.exceptions import ArgumentError, DefinitionError, UnsafeLocationError

TABLE = parse_table(
    {
        "name": "shop",
        "source": {"type": "files", "path": "in", "format": "parquet"},
        "key": ["id"],
        "errors": {},
        "guards": {"min_rows": 3},
    }
)
PLACE = ExportPlace("/out", 12, "abc")
MANIFEST = Manifest("shop", "u1", 12, None, 3, (("id", "bigint"),), (ExportedFile("rows-12-abc/part-0.parquet", 7),))


def test_load_has_all_but_the_source_of_the_table():
    found = definition_of_load(TABLE, {"type": "delta", "path": "other"})

    assert found.model_copy(update={"source": TABLE.source}) == TABLE
    assert found.content_hash != TABLE.content_hash, "so the next refresh compares everything"


def test_load_that_the_table_cannot_have_is_refused():
    with pytest.raises(DefinitionError, match="errors needs a deterministic source"):
        definition_of_load(TABLE, {"type": "function", "callable": "a:b"})


def test_load_always_compares_and_says_what_it_is():
    found = request_of_load(Request(hold=True, overrides=("min_rows",), note="why"))

    assert (found.force, found.hold, found.overrides) == (True, True, ("min_rows",))
    assert found.note == "loaded from another source: why"
    assert len(request_of_load(Request(note="x" * 1000)).note or "") == 1000


@pytest.mark.parametrize("more", [{"read_only": True}, {"is_stale_only": True}, {"scope": Scope(start="a")}])
def test_load_of_a_part_is_refused(more):
    with pytest.raises(ArgumentError, match="neither"):
        request_of_load(Request(**more))


def test_manifest_survives_its_text():
    assert manifest_of(MANIFEST.to_text()) == MANIFEST
    assert "\n" not in MANIFEST.to_text()
    assert MANIFEST.is_of(PLACE)
    assert not MANIFEST.is_of(ExportPlace("/out", 12, "ab"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"table": "x"}', MANIFEST.to_text()[:-9]])
def test_what_is_no_manifest_is_refused(text):
    with pytest.raises(ArgumentError, match="not a manifest"):
        manifest_of(text)


def test_version_of_this_table_alone_counts_as_exported():
    assert already_exported([MANIFEST], "u1", 12) == MANIFEST
    assert already_exported([MANIFEST], "u1", 13) is None
    with pytest.raises(ArgumentError, match="another table, shop"):
        already_exported([MANIFEST], "u2", 13)


@pytest.mark.parametrize(
    "to", ["/w/a", "/w", "/w/a/b", "/", "/w/_mv", "/w/_mv/x", "/o/../w/a", "x", "/o/{a,b}", "ftp://a/b"]
)
def test_export_into_a_table_or_nowhere_is_refused(to):
    with pytest.raises(UnsafeLocationError):
        export_root(to, "/w", ["/w/a", "/w/a__errors"])


def test_export_beside_tables_is_allowed():
    assert export_root("/w/exports/", "/w", ["/w/a"]) == "/w/exports"
