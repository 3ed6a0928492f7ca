"""The pages of the site that are made from the package: a hook of MkDocs.

    index, changelog, contributing   README.md, CHANGELOG.md, CONTRIBUTING.md, their links as the site has them
    reference/definition             every field of a definition, from its JSON Schema
    reference/airflow                operators, sensors, triggers, notifiers, hook: mkdocstrings reads their docstrings
    reference/commands               every command of `amv`, by mkdocs-click
    reference/params                 every param of a run
    reference/errors                 every error: its code, when it is raised, what to do

Links to files that the site does not have, such as benchmarks, become plain text.
"""

from __future__ import annotations

import html
import inspect
import json
import re
from pathlib import Path
from typing import Any

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from airflow_mv_provider import exceptions
from airflow_mv_provider.core.definition.document import json_schema
from airflow_mv_provider.operators.form import refresh_params

ROOT = Path(__file__).parent.parent
_OF_ROOT = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
_BADGE = re.compile(r"!\[\w+\]\(https://[^)]*\)\s")  # the site loads nothing from elsewhere
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FIRST = ("RefreshableTable", "Guards", "Check", "Freshness", "ErrorTable")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no file of docs/ has."""
    pages = {name: (ROOT / source).read_text(encoding="utf-8") for source, name in _OF_ROOT.items()}
    pages |= {
        "reference/definition.md": definition_page(),
        "reference/airflow.md": airflow_page(),
        "reference/commands.md": COMMANDS,
        "reference/params.md": params_page(),
        "reference/errors.md": errors_page(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with its links as the site has them."""
    is_of_root = page.file.src_uri in _OF_ROOT.values()
    markdown = _BADGE.sub("", markdown)

    def moved(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        path, hash_, anchor = target.partition("#")
        if target.startswith(("https://", "mailto:")) or not path:
            return link[0]
        path = path.removeprefix("docs/") if is_of_root else path
        path = _OF_ROOT.get(path.removeprefix("../"), path)
        if path.startswith("../") or (is_of_root and files.get_file_from_path(path) is None):
            return text
        return f"{mark}[{text}]({path}{hash_}{anchor})"

    return _LINK.sub(moved, markdown)


def definition_page() -> str:
    """Return the reference of definition files: a table of fields for each part."""
    schema = json_schema()
    parts: dict[str, Any] = schema["$defs"]
    others = sorted(name for name in parts if name not in _FIRST)
    dags = schema["properties"]["dags"]["properties"]
    text = [
        "# Definition files\n",
        "A definition file is YAML, or a `RefreshableTable` in Python with the same names. `amv schema` prints its JSON"
        " Schema, by which editors complete and check it.\n",
    ]
    for name in (*_FIRST, *others):
        text += [f"## {name}\n", f"{parts[name].get('description', '')}\n", *_fields(parts[name])]
    ingestion = schema["properties"]["ingestions"]["items"]
    text += ["## ingestions\n", "Each item: one source that several tables read in one state.\n", *_fields(ingestion)]
    text += ["## dags\n", f"{schema['properties']['dags']['description']}\n", *_fields(dags["defaults"])]
    return "\n".join(text)


def _fields(part: dict[str, Any]) -> list[str]:
    if "enum" in part:
        return [f"{_type(part)}\n"]
    required = part.get("required", ())
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, field in part.get("properties", {}).items():
        default = "**required**" if name in required else f"`{json.dumps(field.get('default'))}`"
        rows.append(f"| `{name}` | {_type(field)} | {default} | {_cell(field.get('description', ''))} |")
    return [*rows, ""]


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{each}`" for each in field["enum"])
    for several in ("anyOf", "oneOf"):
        if several in field:
            return " or ".join(dict.fromkeys(_type(each) for each in field[several]))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return _cell(str(field.get("type", "any")))


def _cell(text: str) -> str:
    parts = text.replace("|", "\\|").replace("\n", " ").split("`")  # what is between two of them is code
    return "`".join(part if place % 2 else html.escape(part, quote=False) for place, part in enumerate(parts))


def airflow_page() -> str:
    """Return the reference of what users put into DAGs, by kind."""
    listed = yaml.safe_load((ROOT / ".airflow-registry.yaml").read_text(encoding="utf-8"))
    text = ["# Operators, sensors, notifiers\n", "## Arguments that several operators take\n"]
    text += [f"::: {name}\n" for name in _BASES]
    for kind, entries in listed.items():
        if isinstance(entries, list):
            text += [f"## {kind.capitalize()}\n", *(f"::: {entry['module']}\n" for entry in entries)]
    return "\n".join([*text, "## DAGs and task groups\n", *(f"::: {name}\n" for name in _FUNCTIONS)])


_BASES = ("airflow_mv_provider.operators.task.MvOperator", "airflow_mv_provider.operators.refresh.FirstTask")
_FUNCTIONS = (
    "airflow_mv_provider.operators.factory.refresh_dags",
    "airflow_mv_provider.operators.groups.refresh_table_group",
    "airflow_mv_provider.operators.groups.ingest_group",
    "airflow_mv_provider.operators.form.refresh_params",
    "airflow_mv_provider.operators.retry.retry_policy",
    "airflow_mv_provider.triggers.commits.delta_asset",
    "airflow_mv_provider.deadlines.freshness_deadline",
)


_BASE_ERRORS = (exceptions.MvError, exceptions.TransientError, exceptions.TerminalError)


def errors_page() -> str:
    """Return the reference of errors: code, class, when, what to do."""
    text = [
        "# Errors\n",
        "A message has three parts: where, what was expected and found, what to do next. Below is the usual hint.\n",
        "| code | class | a retry may succeed | when | what to do |",
        "|---|---|---|---|---|",
    ]
    classes = [each for each in vars(exceptions).values() if inspect.isclass(each)]
    for each in sorted(classes, key=lambda each: getattr(each, "code", "")):
        if issubclass(each, exceptions.MvError) and "code" in vars(each) and each not in _BASE_ERRORS:
            when = (inspect.getdoc(each) or "").splitlines()[0]
            retry = "yes" if each.is_transient else "no"
            text.append(f"| `{each.code}` | `{each.__name__}` | {retry} | {_cell(when)} | {_cell(each.hint)} |")
    text.append("| `MV-UNEXPECTED` | | no | A fault of this package. | Set AMV_DEBUG=1 to see where, and report it. |")
    return "\n".join(text)


def params_page() -> str:
    """Return the reference of what a run of a refresh may be given."""
    rows = ["| param | type | default | meaning |", "|---|---|---|---|"]
    for name, param in refresh_params().items():
        kinds = [kind for kind in param.schema["type"] if kind != "null"]
        values = [f"`{value}`" for value in param.schema.get("enum", ()) if value is not None]
        kind = " or ".join(values or kinds)
        meaning = f"{param.schema['title']}. {param.description}"
        rows.append(f"| `{name}` | {kind} | `{json.dumps(param.value)}` | {_cell(meaning)} |")
    return "\n".join(
        [
            "# Params of a run\n",
            "The `conf` of a run, and the form's fields. A name that is not known is refused.\n",
            *rows,
        ]
    )


COMMANDS = """# Commands

`airflow mv ...` has the same commands, with Airflow's settings.

::: mkdocs-click
    :module: airflow_mv_provider.cli.main
    :command: main
    :prog_name: amv
    :depth: 1
    :style: table
"""
