"""Airflow knows the provider, and knowing it costs nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import airflow_mv_provider
from airflow_mv_provider import __version__
from airflow_mv_provider.get_provider_info import get_provider_info

REGISTRY = Path(__file__).parents[2] / ".airflow-registry.yaml"
INFO = get_provider_info()


def schema(name: str) -> Any:
    import airflow

    return json.loads((Path(airflow.__file__).parent / name).read_text(encoding="utf-8"))


def modules_after(code: str) -> set[str]:
    """Run code in a fresh interpreter; return the top-level modules it has loaded."""
    code += "\nimport sys; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"\w+", out.splitlines()[-1]))


def test_the_entry_point_gives_the_provider_under_the_distributions_name() -> None:
    ours = [e for e in entry_points(group="apache_airflow_provider") if e.value.startswith("airflow_mv_provider.")]

    assert [e.load()() for e in ours] == [INFO]
    assert ours[0].dist is not None
    assert INFO["package-name"] == ours[0].dist.name


def test_the_provider_is_loaded_without_airflow_or_spark() -> None:
    loaded = modules_after("from airflow_mv_provider.get_provider_info import get_provider_info; get_provider_info()")

    assert not {"airflow", "pyspark", "pydantic", "sqlalchemy"} & loaded


@pytest.mark.slow
def test_the_provider_fits_airflows_schemas() -> None:
    jsonschema.validate(INFO, schema("provider_info.schema.json"))
    # Conn-fields are described in the schema for provider.yaml only.
    connections = schema("provider.yaml.schema.json")["properties"]["connection-types"]
    jsonschema.validate(INFO["connection-types"], connections)


def test_each_option_is_complete_and_has_no_default() -> None:
    options = INFO["config"]["mv"]["options"]

    assert {frozenset(o) - {"sensitive"} for o in options.values()} == {
        frozenset({"description", "version_added", "type", "example", "default"})
    }
    assert {o["version_added"] for o in options.values()} == {__version__}
    # A default would be found before AMV_* variables, which come after [mv].
    assert {o["default"] for o in options.values()} == {None}
    assert [name for name, o in options.items() if o.get("sensitive")] == ["sql_alchemy_conn", "spark_remote"]


@pytest.mark.slow
def test_what_dags_are_written_with_is_imported_from_the_top() -> None:
    registry = yaml.safe_load(REGISTRY.read_text(encoding="utf-8"))
    listed = [entry["module"] for group in registry.values() if isinstance(group, list) for entry in group]
    paths = {**{path.rpartition(".")[2]: path for path in listed}, "refresh_dags": "operators.factory.refresh_dags"}

    assert [name for name in paths if name not in airflow_mv_provider.__all__] == []
    for name in airflow_mv_provider.__all__:
        found = getattr(airflow_mv_provider, name)
        assert found.__name__ == name
        assert found.__module__.startswith("airflow_mv_provider.")


@pytest.mark.slow
def test_every_named_module_and_class_exists() -> None:
    named = set()
    for kind in ("hooks", "operators", "sensors", "triggers"):
        for group in INFO[kind]:
            for module in group["python-modules"]:
                import_module(module)
                named.add(module)
    registry = yaml.safe_load(REGISTRY.read_text(encoding="utf-8"))
    listed = [entry["module"] for kind in ("hooks", "operators", "sensors", "triggers") for entry in registry[kind]]
    assert {name.rpartition(".")[0] for name in listed} <= named
    for connection in INFO["connection-types"]:
        module, _, name = connection["hook-class-name"].rpartition(".")
        hook = getattr(import_module(module), name)
        assert hook.conn_type == connection["connection-type"]
        assert hook.hook_name == connection["hook-name"]
    for path in (*INFO["extra-links"], *INFO["notifications"], *INFO["cli"]):
        module, _, name = path.rpartition(".")
        assert callable(getattr(import_module(module), name))
