"""The wheel, as people install it: into an empty environment with stock Airflow, where Airflow shows what it brings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider.get_provider_info import get_provider_info

# It installs Airflow anew; what the wheel holds, and that its metadata is whole, show tests of milliseconds, too.
pytestmark = [pytest.mark.slow, pytest.mark.in_test_all]

ROOT = Path(__file__).parents[2]
INFO = get_provider_info()
# One interpreter runs them all: each start of Airflow costs seconds.
PROGRAM = """
import contextlib, io, json, sys
from airflow.cli import cli_parser

answers = {}
for command in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        sys.argv = ["airflow", *command.split()]
        arguments = cli_parser.get_parser().parse_args(command.split())
        arguments.func(arguments)
    answers[command] = [out.getvalue(), err.getvalue()]
heavy = sorted({name.split(".")[0] for name in sys.modules} & {"pyspark", "py4j", "delta"})
json.dump({"answers": answers, "heavy": heavy}, sys.__stdout__)
"""
COMMANDS = (
    *("providers list", "providers hooks", "providers links", "providers triggers", "providers configs"),
    *("providers notifications", "config list --section mv"),
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The interpreter of an environment that has the wheel, with what it requires, and nothing else."""
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = (place / "dist").glob("*.whl")
    python = place / "env" / "bin" / "python"
    wanted = ["--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel)]
    uv = shutil.which("uv", path=f"{os.environ['PATH']}:{Path(sys.executable).parent}")
    if uv is not None and subprocess.run([uv, "--version"], check=False, capture_output=True).returncode == 0:
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, place / "env"], check=True)
        subprocess.run([uv, "pip", "install", "--python", python, *wanted], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", place / "env"], check=True)
        subprocess.run([python, "-m", "pip", "install", *wanted], check=True)
    yield python
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def shown(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Airflow's commands print there."""
    home = tmp_path_factory.mktemp("home")
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "AMV_", "PYTHON"))}
    done = subprocess.run(
        [installed, "-c", PROGRAM, json.dumps(COMMANDS)],
        cwd=home,
        env=keep | {"AIRFLOW_HOME": str(home), "COLUMNS": "300"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # Import problems of a provider are warnings only.
    assert "airflow_mv" not in done.stderr
    assert "airflow-mv" not in done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("providers list", ["airflow-mv-provider"]),
        ("providers hooks", [INFO["connection-types"][0]["hook-class-name"]]),
        ("providers links", INFO["extra-links"]),
        ("providers triggers", INFO["triggers"][0]["python-modules"]),
        ("providers configs", ["airflow-mv-provider"]),
        ("providers notifications", INFO["notifications"]),
        ("config list --section mv", list(INFO["config"]["mv"]["options"])),
    ],
)
def test_airflows_commands_show_it_without_warnings(shown, command, names):
    out, err = shown["answers"][command]

    assert [name for name in names if name not in out] == []
    assert "airflow_mv" not in err
    assert "airflow-mv" not in err


def test_airflow_has_not_loaded_spark_for_it(shown):
    assert shown["heavy"] == []


def test_the_program_that_is_submitted_is_in_the_wheel(installed, tmp_path):
    code = "from airflow_mv_provider.operators.submit import program; print(program())"
    keep = os.environ | {"AIRFLOW_HOME": str(tmp_path)}

    found = subprocess.run([installed, "-c", code], cwd=tmp_path, env=keep, check=True, capture_output=True, text=True)

    path = Path(found.stdout.splitlines()[-1])
    assert path.is_relative_to(installed.parents[1])
    assert path.read_text() == (ROOT / "spark_apps" / "refresh_table.py").read_text()
