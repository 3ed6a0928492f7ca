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
from collections.abc import Mapping
from pathlib import Path
from typing import Any, is_typeddict

import yaml
from markdown.extensions.toc import slugify
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import airflow_mv_provider as package
from airflow_mv_provider import exceptions
from airflow_mv_provider.core.definition.document import json_schema
from airflow_mv_provider.core.definition.source import Source
from airflow_mv_provider.operators.form import refresh_params

ROOT = Path(__file__).parent.parent
_OF_ROOT = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
_BADGE = re.compile(r"!\[\w+\]\(https://[^)]*\)\s")  # the site loads nothing from elsewhere
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


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
    headings = _headings(parts)
    dags = schema["properties"]["dags"]["properties"]
    text = [
        "# Definition files\n",
        "A definition file is YAML, or a `RefreshableTable` in Python with the same names. `amv schema` prints its JSON"
        " Schema, by which editors complete and check it. All fields are there since 0.1.0.\n",
    ]
    for name, heading in headings.items():
        text += [f"## {heading}\n", f"{parts[name].get('description', '')}\n", *_fields(parts[name], parts, headings)]
    ingestion = schema["properties"]["ingestions"]["items"]
    text += ["## ingestions\n", "Each item: one source that several tables read in one state.\n"]
    text += [*_fields(ingestion, parts, headings), "## dags\n", f"{schema['properties']['dags']['description']}\n"]
    return "\n".join([*text, *_fields(dags["defaults"], parts, headings)])


def _headings(parts: dict[str, Any]) -> dict[str, str]:
    """Return the heading of each part that has fields: where it stands in a file; a part stands below what has it."""
    found: dict[str, str] = {}

    def add(name: str, heading: str) -> None:
        properties = parts[name].get("properties")
        if name in found or properties is None:
            return
        found[name] = heading
        above = "" if name == "RefreshableTable" else f"{heading}: "
        for field, value in properties.items():
            for each in _references(value):
                kind = parts[each].get("properties", {}).get("type", {}).get("const")
                add(each, _SHARED.get(each) or above + (f"{field}: {kind}" if kind else field))

    add("RefreshableTable", "tables")
    return found


_SHARED = {  # of several fields
    "TimesUsual": "guards: a multiple of the usual",
    "PartOfUsual": "guards: a fraction of the usual",
}


def _references(field: Any) -> list[str]:
    """Return the parts that a field's schema names."""
    if isinstance(field, list):
        return [name for each in field for name in _references(each)]
    if not isinstance(field, dict):
        return []
    own = [field["$ref"].rpartition("/")[2]] if "$ref" in field else []
    return [*own, *_references([value for name, value in field.items() if name != "discriminator"])]


def _fields(part: dict[str, Any], parts: Mapping[str, Any], headings: Mapping[str, str]) -> list[str]:
    required = part.get("required", ())
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, field in sorted(part["properties"].items(), key=_place):
        if field.get("type") == "null":  # what other kinds have
            continue
        default = "**required**" if name in required else _default(field.get("default"))
        meaning = _cell("Names the kind of source." if "const" in field else field["description"])
        example = f"<br>Example: `{_yaml(field['examples'][0])}`" if "examples" in field else ""
        cells = (f"`{name}`", _type(field, parts, headings), default, f"{meaning}{example}")
        rows.append(f"| {' | '.join(cells)} |")
    return [*rows, ""]


def _place(named: tuple[str, dict[str, Any]]) -> int:
    """Order a source's fields: its type, its own, and those that every kind has."""
    name, field = named
    return 0 if "const" in field else 2 if name in Source.model_fields else 1


def _default(value: Any) -> str:
    is_part = isinstance(value, dict) and bool(value)
    return "those of its own fields" if is_part else f"`{json.dumps(value)}`"


def _yaml(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000)
    return text.removesuffix("...\n").strip().replace("|", "\\|")


def _type(field: dict[str, Any], parts: Mapping[str, Any], headings: Mapping[str, str]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        if name not in headings:
            return _type(parts[name], parts, headings)
        return f"[{headings[name]}](#{slugify(headings[name], '-')})"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{each}`" for each in field["enum"])
    for several in ("anyOf", "oneOf"):
        if several in field:
            return " or ".join(dict.fromkeys(_type(each, parts, headings) for each in field[several]))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}), parts, headings)}"
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
    return "\n".join([*text, "## DAGs and task groups\n", *(f"::: {name}\n" for name in _helpers())])


_BASES = ("airflow_mv_provider.operators.task.MvOperator", "airflow_mv_provider.operators.refresh.FirstTask")


def _helpers() -> list[str]:
    """Return what the package exports for DAGs besides classes that Airflow or a definition knows."""
    exported = [getattr(package, name) for name in package.__all__]
    return [f"{each.__module__}.{each.__name__}" for each in exported if inspect.isfunction(each) or is_typeddict(each)]


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
