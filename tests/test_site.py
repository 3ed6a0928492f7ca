"""The documentation's site is built without a warning, and its reference has all that is public."""

from __future__ import annotations

import html
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from pydantic import ValidationError

import airflow_mv_provider as package
from airflow_mv_provider import exceptions
from airflow_mv_provider.cli.main import main
from airflow_mv_provider.core.definition.source import Part
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.get_provider_info import get_provider_info
from airflow_mv_provider.operators.form import refresh_params

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(place)]

    run = subprocess.run(
        build, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stdout + run.stderr
    return place


def text(site: Path, page: str) -> str:
    return (site / page / "index.html").read_text(encoding="utf-8")


@pytest.mark.in_test_all
@pytest.mark.slow
def test_reference_has_all_that_is_public(site: Path) -> None:
    listed = yaml.safe_load((ROOT / ".airflow-registry.yaml").read_text(encoding="utf-8"))
    classes = [entry["module"] for group in listed.values() if isinstance(group, list) for entry in group]
    codes = {each.code for each in vars(exceptions).values() if inspect.isclass(each) and hasattr(each, "code")}
    definition, commands = text(site, "reference/definition"), text(site, "reference/commands")

    assert [name for name in classes if f'id="{name}"' not in text(site, "reference/airflow")] == []
    assert [name for name in RefreshableTable.model_fields if f"<code>{name}</code>" not in definition] == []
    params = text(site, "reference/params")

    assert [name for name in refresh_params() if f"<code>{name}</code>" not in params] == []
    assert [name for name in commands_of(main) if f"{name} [OPTIONS]" not in commands] == []
    exported = [f"{each.__module__}.{each.__name__}" for each in map(package.__getattr__, package.__all__)]
    in_definitions = {f"{each.__module__}.{each.__name__}" for each in parts_of_definitions()}
    reference = text(site, "reference/airflow")
    assert [name for name in exported if name not in in_definitions and f'id="{name}"' not in reference] == []
    assert [
        code
        for code in codes - {"MV-ERROR", "MV-TRANSIENT", "MV-TERMINAL"}
        if f"<code>{code}</code>" not in text(site, "reference/errors")
    ] == []


def commands_of(group: click.Group, path: str = "amv") -> Iterator[str]:
    """All commands as they are typed."""
    for name, command in group.commands.items():
        yield f"{path} {name}"
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{path} {name}")


@pytest.mark.slow
def test_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loading = re.compile(
        r'<(?:img|script|iframe)[^>]*\ssrc="(https?:[^"]*)"|<link[^>]*stylesheet[^>]*href="(https?:[^"]*)"'
    )

    found = {str(page.relative_to(site)): loading.findall(page.read_text("utf-8")) for page in site.rglob("*.html")}

    assert {page: links for page, links in found.items() if links} == {}
    assert "Why not overwrite" in html.unescape((site / "index.html").read_text(encoding="utf-8"))


def parts_of_definitions(base: type[Part] = Part) -> Iterator[type[Part]]:
    for each in base.__subclasses__():
        if each.__module__.startswith("airflow_mv_provider") and each.__name__ != "Ingested":
            yield each
        yield from parts_of_definitions(each)


@pytest.mark.parametrize("part", sorted(parts_of_definitions(), key=lambda part: part.__name__))
def test_each_field_of_a_definition_says_what_it_means_and_has_an_example_that_is_allowed(part: type[Part]) -> None:
    for name, field in part.model_fields.items():
        alias = field.alias or name
        schema = part.model_json_schema(by_alias=True)["properties"].get(alias)
        if schema is None or "const" in schema or schema.get("type") == "null":
            continue
        text = json.dumps(schema)
        says_itself = '"enum"' in text or schema.get("type") == "boolean" or "$ref" in schema or schema.get("default")

        assert field.description, f"{part.__name__}.{name}"
        assert field.examples or says_itself, f"{part.__name__}.{name}"
        for example in field.examples or ():
            assert alias not in refused(part, {alias: example}), f"{part.__name__}.{name}: {example}"


def refused(part: type[Part], document: dict[str, object]) -> set[object]:
    """Return the fields of a document that a part refuses; that others are missing does not matter."""
    try:
        part.model_validate(document)
    except ValidationError as error:
        return {problem["loc"][0] for problem in error.errors() if problem["loc"]}
    return set()


def test_every_setting_is_on_the_page_of_settings() -> None:
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    package = [file.read_text(encoding="utf-8") for file in (ROOT / "airflow_mv_provider").rglob("*.py")]
    variables = {name for code in package for name in re.findall(r"\"(AMV_[A-Z0-9_]*[A-Z0-9])\"", code)}
    options = get_provider_info()["config"]["mv"]["options"]

    assert len(variables) > 15
    assert {name for name in variables if f"`{name}" not in page} == set()
    assert {name for name in options if f"`{name}`" not in page} == set()


def test_every_metric_is_on_the_page_of_metrics() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    package = [file.read_text(encoding="utf-8") for file in (ROOT / "airflow_mv_provider").rglob("*.py")]
    sent = {name for code in package for name in re.findall(r"(?:incr|gauge|timing)\(\s*\"([\w.]+)\"", code)}

    assert len(sent) > 8
    assert sent == set(re.findall(r"^\| `(mv\.[\w.]+)`", page, re.MULTILINE))
