"""Places: a source stays under its roots, main stays apart from it, and only workspaces are ever deleted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.location import (
    TableRef,
    Workspace,
    absolute_root,
    check_apart,
    is_inside,
    is_kept,
    main_location,
    refresh_id_of,
    source_location,
    table_workspaces,
)
from airflow_mv_provider.exceptions import InvalidIdentifierError, UnsafeLocationError

WAREHOUSE = "/wh"
UUID = "6a1f6a7e-6d7a-4a0b-9f5e-0d6c1c5a3b11"
REFRESH = "0123456789abcdef" * 2


# -- addresses of Delta tables ---------------------------------------------------------------------------------------


def test_statement_addresses_a_table_by_its_quoted_path():
    assert TableRef("s3a://lake/gold/orders").sql == "delta.`s3a://lake/gold/orders`"
    assert TableRef("/odd`; DROP TABLE x").sql == "delta.`/odd``; DROP TABLE x`"


def test_message_calls_a_table_by_its_path():
    assert f"{TableRef('/lake/gold/orders')} is missing" == "/lake/gold/orders is missing"


def test_error_table_lies_beside_main():
    assert TableRef("/lake/gold/orders").errors == TableRef("/lake/gold/orders__errors")


# -- sources ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("raw/orders", "/wh/raw/orders"),
        ("raw//orders/", "/wh/raw/orders"),
        ("./raw/./orders", "/wh/raw/orders"),
        ("/wh/raw/orders", "/wh/raw/orders"),
        ("file:/wh/raw", "/wh/raw"),
        ("file:///wh/raw", "/wh/raw"),
        ("raw/*.csv", "/wh/raw/*.csv"),
        ("raw/{a,b}/[0-9]?.csv", "/wh/raw/{a,b}/[0-9]?.csv"),
        ("raw/2013,01.csv", "/wh/raw/2013,01.csv"),
        ("raw/..hidden", "/wh/raw/..hidden"),
        ("raw/a..b", "/wh/raw/a..b"),
        ("raw/%20x", "/wh/raw/%20x"),
        ("/data/in/x", "/data/in/x"),
        ("s3://bucket/in/x", "s3://bucket/in/x"),
        ("S3x/y", "/wh/S3x/y"),
    ],
)
def test_source_under_a_root_has_one_absolute_name(path, expected):
    assert source_location(path, WAREHOUSE, ["/data/in", "s3://bucket/in"]) == expected


@pytest.mark.parametrize(
    "path",
    [
        *("../../etc", "..", "raw/..", "raw/../../etc/passwd", "/wh/../etc", "/wh/raw/../../etc", "raw/../orders"),
        *("%2e%2e/", "%2e%2e/%2e%2e/etc", "%2E%2E/etc", ".%2e/etc", "raw/%2e./x", "..%2fetc", "raw%2f..%2f..%2fetc"),
        *("%252e%252e/etc", "%252e%252e%252fetc", "..%255cetc", "..\\etc", "raw\\..\\..\\etc"),
        *("{../etc,raw/x}", "raw/{../../etc/x,y}", "{../{../etc,a},b/c}", "{raw,..}/etc", "{a,../etc/x}/y"),
        *(".\\./etc", "\\.\\./etc", "raw/.\\./.\\./etc/*"),
    ],
)
def test_path_that_leads_out_is_refused(path):
    with pytest.raises(UnsafeLocationError, match=r"leads out of its root|outside the warehouse"):
        source_location(path, WAREHOUSE)


@pytest.mark.parametrize(
    "path",
    [
        *("http://evil/x", "https://evil/x", "HTTP://evil/x", "jar:file:/x.jar!/y", "JAR:x", "ftp://x/y", "data:,x"),
        *("jdbc:postgresql://h/d", "javascript:x", "C:\\data", "%68ttp://evil/x", "view-source:x", "har:///x.har"),
        *("local:/etc", "s3n://bucket/in/x", "webhdfs://h/x"),
    ],
)
def test_scheme_that_is_not_known_is_refused(path):
    with pytest.raises(UnsafeLocationError, match=r"the scheme of .* is not allowed"):
        source_location(path, WAREHOUSE, ["/"])


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "/", "/whx", "/wh2/raw", "//wh/raw", "file:///etc", "file://host/wh/raw", "FILE:///wh/raw"),
        *(
            "s3://other/in",
            "s3://bucket/inside",
            "s3a://bucket/in/x",
            "s3://bucket",
            "hdfs://nn/wh",
            "/wh/raw/../../x",
        ),
        *(" http://evil/x", "\u2024\u2024://x"),
    ],
)
def test_place_outside_every_root_is_refused(path):
    with pytest.raises(UnsafeLocationError):
        source_location(path, WAREHOUSE, ["s3://bucket/in"])


@pytest.mark.parametrize("path", ["", " ", "\t", "raw\n/x", "raw/\x00x", "raw/\x1b[31m"], ids=repr)
def test_empty_path_or_control_character_is_refused(path):
    with pytest.raises(UnsafeLocationError, match="is empty or has control characters"):
        source_location(path, WAREHOUSE)


@pytest.mark.parametrize(
    "path",
    [
        *(
            "_mv",
            "_mv/",
            f"_mv/{UUID}/{REFRESH}/staging-1",
            "/wh/_mv/x",
            "file:/wh/_mv",
            "./_mv//x",
            "raw/x/{a,b}/../..",
        ),
        *("_m?/x", "_*/*/*/staging-1", "{_mv,raw}/x", "[_]mv/x"),
    ],
)
def test_staging_area_is_no_source(path):
    with pytest.raises(UnsafeLocationError):
        source_location(path, WAREHOUSE)


@given(st.lists(st.sampled_from(["..", ".", "a", "%2e%2e", "{", "}", ",", "\\", "/", "/", "file:", "*"]), max_size=12))
def test_no_path_is_taken_that_hadoop_could_resolve_outside(pieces):
    path = "".join(pieces)

    try:
        found = source_location(path, WAREHOUSE)
    except UnsafeLocationError:
        return

    assert is_inside(found, WAREHOUSE)
    for braces in (("{", "}", ","), ()):
        plain = found.replace("\\", "")
        for brace in braces:
            plain = plain.replace(brace, "/")
        assert ".." not in plain.split("/")


# -- main and its source ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        *("/wh/orders", "/wh/orders/", "/wh/orders/part=1", "/wh", "/", "/wh/orders/_delta_log"),
        *("/wh/*", "/wh/*/x.parquet", "/wh/ord*", "/wh/ord*/*.parquet", "/wh/o?ders", "/wh/[no]rders/*", "/w*/orders"),
        *("/wh/[!x]rders", "/wh/[^x]rders", "/wh/{orders,raw}/*", "/wh/{raw,or*}", "/wh/{raw/a,orders}", "/*/*/*"),
        *("/wh/{raw/x/y,orders/a}/z", "/wh/ord\\ers", "/wh/{raw,{a,orders}}/x"),
    ],
)
def test_source_that_shares_a_directory_with_main_is_refused(source):
    with pytest.raises(UnsafeLocationError, match="share a directory"):
        check_apart("/wh/orders", source)


@pytest.mark.parametrize(
    "source",
    [
        *(
            "/wh/orders2",
            "/wh/order",
            "/wh/raw/orders",
            "/data/wh/orders",
            "/wh/raw*/*.csv",
            "/wh/*.csv",
            "/wh/orders_*/x",
        ),
        *("/wh/{raw,in}/*", "/wh/[!o]rders", "s3://wh/orders", "/wh/?orders", "/wh/ORDERS", "/wh/{a,b}{c,d}/x"),
    ],
)
def test_source_beside_main_is_fine(source):
    check_apart("/wh/orders", source)


def test_main_in_object_storage_is_kept_apart_too():
    with pytest.raises(UnsafeLocationError):
        check_apart("s3://b/wh/orders", "s3://b/wh/*/x")

    check_apart("s3://b/wh/orders", "s3://c/wh/*/x")


def test_main_lies_under_the_warehouse_by_its_name():
    assert main_location("/wh", "orders") == "/wh/orders"
    assert main_location("/wh/", "lake.gold.orders") == "/wh/lake/gold/orders"
    assert main_location("/", "orders") == "/orders"
    with pytest.raises(InvalidIdentifierError):
        main_location("/wh", "../etc")


# -- roots -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        *(("/wh", "/wh"), ("/wh/", "/wh"), ("/", "/"), ("file:/wh", "/wh"), ("file:///wh/", "/wh")),
        *(("/data//wh", "/data/wh"), ("/data/./wh", "/data/wh"), ("/data/../wh", "/wh"), ("/wh/.", "/wh")),
        *(("s3://bucket", "s3://bucket"), ("s3://bucket/wh/", "s3://bucket/wh"), ("hdfs:///wh", "hdfs:///wh")),
    ],
)
def test_root_has_one_spelling_that_its_sources_share(path, expected):
    root = absolute_root(path)

    assert root == expected
    assert source_location("raw/x", root) == expected.rstrip("/") + "/raw/x"


@pytest.mark.parametrize("path", ["wh", "./wh", "", "s3:wh", "http://x/wh", "jar:x", "~/wh", "%2fwh", "file:wh"])
def test_root_that_is_not_absolute_or_allowed_is_refused(path):
    with pytest.raises(UnsafeLocationError):
        absolute_root(path)


# -- workspaces ------------------------------------------------------------------------------------------------------


def test_workspace_is_computed_and_carries_the_marker():
    workspace = Workspace("/wh/", UUID, REFRESH)

    assert workspace.root == f"/wh/_mv/{UUID}/{REFRESH}"
    assert workspace.at("staging", 3) == f"{workspace.root}/staging-3"
    assert workspace.without_deletes(3, 1, -1) == f"{workspace.root}/kept-3-1--1"
    assert table_workspaces("/wh", UUID) == f"/wh/_mv/{UUID}"


@pytest.mark.parametrize(
    ("table_uuid", "refresh_id"),
    [
        *(
            (UUID, ""),
            (UUID, ".."),
            (UUID, "../x"),
            (UUID, REFRESH + "0"),
            (UUID, REFRESH[:-1]),
            (UUID, REFRESH + "\n"),
        ),
        *((UUID, REFRESH.upper()), ("", REFRESH), ("..", REFRESH), (UUID + "/..", REFRESH), (UUID + "\n", REFRESH)),
        *((UUID.upper(), REFRESH), (UUID.replace("-", ""), REFRESH), ("*", "*")),
    ],
    ids=repr,
)
def test_anything_else_is_no_workspace_and_cannot_be_deleted(table_uuid, refresh_id):
    with pytest.raises(UnsafeLocationError, match="not the workspace of a refresh"):
        Workspace("/wh", table_uuid, refresh_id)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/wh/_mv/{UUID}/{REFRESH}/staging-1/part-0.parquet", REFRESH),
        (f"file:/wh/_mv/{UUID}/{REFRESH}", REFRESH),
        (f"/wh/_mv/{UUID}/kept/{REFRESH}/3-files/part-0.parquet", REFRESH),
        (f"/wh/_mv/{UUID}/kept/other/3-files", None),
        (f"/wh/_mv/{UUID}/other/x", None),
        (f"/wh/_mv/{UUID}", None),
        (f"/wh/_mv/{UUID.replace('6', '7')}/{REFRESH}/x", None),
        (f"/wh/orders/{REFRESH}", None),
    ],
)
def test_file_is_known_by_the_refresh_it_belongs_to(path, expected):
    assert refresh_id_of(path, UUID) == expected


def test_what_is_kept_lies_apart_from_the_workspace_that_is_removed_after_the_publish():
    workspace = Workspace("/wh", UUID, REFRESH)

    place = workspace.kept("3-fingerprints-2")

    assert place == f"/wh/_mv/{UUID}/kept/{REFRESH}/3-fingerprints-2"
    assert is_inside(place, workspace.kept_root)
    assert not is_inside(place, workspace.root)
    assert is_kept(place, UUID)
    assert not is_kept(workspace.at("staging", 3), UUID)


@pytest.mark.parametrize("name", ["", "../x", "3", "3-files/x", "3-files\n", "x-files", "3-copies"])
def test_anything_else_is_not_kept_and_cannot_be_deleted(name):
    with pytest.raises(UnsafeLocationError, match="names no files of a refresh"):
        Workspace("/wh", UUID, REFRESH).kept(name)
