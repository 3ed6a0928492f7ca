"""The fast tests on newer Pythons, and what the extras are for with the lowest versions of them: `make matrix`."""

from __future__ import annotations

import pytest

from tests.matrix.conftest import LOWEST, ROOT, TOOLS, Versions, num_passed, pip_install

pytestmark = [pytest.mark.slow, pytest.mark.matrix, pytest.mark.timeout(3600)]

EXTRAS = ("postgres", "mysql", "kafka", "schema-registry", "protobuf", "openlineage")
OF_THEM = (
    *("metadata/test_postgresql", "engine/test_databases", "engine/test_mariadb_source", "engine/test_kafka_source"),
    *("engine/test_schema_registry", "engine/test_protobuf"),
)


@pytest.mark.parametrize("versions", [Versions("3.12"), Versions("3.13")], ids=str)
def test_the_fast_tests_pass(install, versions):
    wanted = ("-c", ROOT / "constraints.txt", "-e", f"{ROOT}[dev]")
    place = install(versions.python, *wanted, is_with_wheel=False)

    assert num_passed(place / "venv/bin/python", "-m", "not slow") > 5000


@pytest.mark.parametrize("versions", [Versions("3.11", "3.3.2", "4.2.0", LOWEST)], ids=str)
def test_the_extras_work_in_their_lowest_versions(install, versions):
    place = install(*versions.demanded, *(f"--extra={each}" for each in EXTRAS))
    pip_install(place, *TOOLS)
    python, files = place / "venv/bin/python", [f"tests/{name}.py" for name in OF_THEM]

    assert num_passed(python, "-W", "default", "--of-each-file", "3", *files) >= 15
    assert num_passed(python, "-W", "default", "--every-case", "tests/provider/test_open_lineage.py") >= 15
