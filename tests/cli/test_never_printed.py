"""What no command prints: a password, a traceback, a terminal's commands; and what none imports."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sqlalchemy import text

ORDERS = "tables: [{name: orders, source: {type: delta, path: raw/orders}, key: [id]}]"
CANARY = "c4n4ry-p4ss"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://amv:{CANARY}@127.0.0.1:1/amv",
        f"postgresql://amv@127.0.0.1:1/amv?password={CANARY}",
        f"postgresql://amv:x@127.0.0.1:{CANARY}/amv",
        f"mysql://amv:{CANARY}@127.0.0.1/amv",
        f"{CANARY} is no address",
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("history", "t"),
        ("ledger", "t"),
        ("cancel", "t"),
        ("refresh", "t"),
        ("recover",),
        ("db", "check"),
        ("db", "migrate"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("debug", ["", "1"])
def test_no_password_is_printed(amv, monkeypatch, command, url, debug):
    monkeypatch.setenv("AMV_DEBUG", debug)

    said, plain = (amv(*command, *form, "--database", url) for form in (["--json"], []))

    assert said.code in (1, 75)
    assert said.document["error"]["hint"]
    assert CANARY not in said.out + said.err + plain.out + plain.err


def test_an_unforeseen_error_is_one_line_with_a_pointer(amv, monkeypatch):
    amv("apply", amv.file(ORDERS))
    with amv.store.engine.begin() as db:
        db.execute(text("UPDATE refreshable_table SET definition = '{}'"))

    quiet, as_json = amv("status"), amv("refresh", "orders", "--json")
    monkeypatch.setenv("AMV_DEBUG", "1")
    loud = amv("status")

    assert (quiet.code, as_json.code) == (1, 1)
    assert "AMV_DEBUG=1" in quiet.err
    assert "Traceback" not in quiet.err + as_json.err
    assert as_json.document["outcome"] == "failed"
    assert as_json.document["error"]["code"] == "MV-UNEXPECTED"
    assert "Traceback" in loud.err


def test_a_partition_that_is_nested_too_deeply_is_refused(amv):
    amv("apply", amv.file(ORDERS))

    said = amv("refresh", "orders", "--partition", "[" * 100_000, "--json")

    assert (said.code, said.document["error"]["code"]) == (2, "MV-ARGUMENT")
    assert len(said.document["error"]["message"]) < 300


def test_a_name_cannot_command_the_terminal(amv):
    said = amv("status", "\x1b[2Jevil")

    assert "\x1b" not in said.out + said.err


@pytest.mark.parametrize(
    "command",
    [
        *(["history", "orders", "--limit", limit] for limit in ("9" * 20, "9" * 5000, "0", "-1", "1e5", "many")),
        *([command, "\udcff"] for command in ("status", "history", "ledger", "cancel", "pause", "resume")),
        *(["apply", path] for path in ("", "/", "/dev/null", "/dev/zero", "x" * 5000, "/nowhere/\udcff")),
        *(["status", "--database", url] for url in ("sqlite:////proc/no/mv.db", "sqlite:///x?timeout=x", "x", "://")),
        *(["status", "--warehouse", place] for place in ("http://x", "::")),
    ],
    ids=lambda command: " ".join(command)[:40].encode("ascii", "replace").decode(),
)
def test_a_mistake_is_never_called_a_bug(amv, command):
    amv("apply", amv.file(ORDERS))

    said = amv(*command)

    assert said.code in (1, 2)
    assert "MV-UNEXPECTED" not in said.err
    assert "Traceback" not in said.err


_WITHOUT_SPARK = """
import sys
from airflow_mv_provider.cli.main import main
for command in (["apply", sys.argv[1]], ["status"], ["status", "orders"], ["history", "orders"], ["cancel", "orders"],
                ["pause", "orders"], ["resume", "orders"], ["db", "check"], ["db", "migrate"], ["schema"]):
    try:
        main(command)
    except SystemExit as end:
        assert end.code == 0, command
heavy = {"pyspark", "delta", "airflow", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""


def test_only_refresh_and_recover_import_spark(amv):
    environment = {"AMV_DATABASE_URL": amv.url, "AMV_WAREHOUSE": str(amv.warehouse), "PATH": "/usr/bin:/bin"}

    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SPARK, amv.file(ORDERS)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
