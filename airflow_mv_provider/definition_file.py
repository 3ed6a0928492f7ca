"""Read table definitions from YAML: `{"tables": [...]}`, several a file, and how their DAGs are to be: `dags`."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

import yaml

from airflow_mv_provider.core.dag_options import DagOptions, options_of
from airflow_mv_provider.core.table import RefreshableTable, parse_table
from airflow_mv_provider.exceptions import DefinitionError


@dataclass(frozen=True, slots=True)
class DefinitionFile:
    """What a file says: tables in its order, and the options of each table's DAG by the table's name."""

    tables: tuple[RefreshableTable, ...]
    dags: dict[str, DagOptions]


def load(path: str | Path) -> tuple[RefreshableTable, ...]:
    """Return the definitions in a file, in its order.

    raises : DefinitionError, naming the file
    """
    return load_file(path).tables


def load_file(path: str | Path) -> DefinitionFile:
    """Return everything in a file; raises what `load` does."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise DefinitionError(str(path), f"it cannot be read: {error.strerror}.", hint="Check the path.") from error
    except UnicodeDecodeError as error:
        raise DefinitionError(str(path), "it is not UTF-8 text.") from error
    return parse_file(text, where=str(path))


def parse(text: str, *, where: str = "definitions") -> tuple[RefreshableTable, ...]:
    """Return the definitions in a YAML text; raises what `parse_file` does."""
    return parse_file(text, where=where).tables


def parse_file(text: str, *, where: str = "definitions") -> DefinitionFile:
    """Return everything in a YAML text; safe YAML only, no tags, no duplicate names.

    raises : DefinitionError
    """
    try:
        document = yaml.load(text, Loader=_UniqueKeys)  # nosec B506  # it is a SafeLoader
    except RecursionError as error:
        raise DefinitionError(where, "it is nested too deeply.") from error
    except yaml.YAMLError as error:
        line = getattr(error, "problem_mark", None)
        at = f" in line {line.line + 1}" if line else ""
        raise DefinitionError(
            where, f"it is not YAML{at}: {getattr(error, 'problem', None) or 'see the file'}."
        ) from error
    if not isinstance(document, dict) or not isinstance(document.get("tables"), list):
        raise DefinitionError(where, "expected one key, `tables`, with a list.")
    if unknown := [str(key) for key in document if key not in ("tables", "dags")]:
        raise DefinitionError(where, f"unknown key {unknown[0]!r} beside `tables`.")
    tables = tuple(_table(each, where) for each in document["tables"])
    names = [table.name for table in tables]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DefinitionError(where, f"table {twice[0]!r} is defined twice.")
    try:
        return DefinitionFile(tables, options_of(document.get("dags"), tables))
    except DefinitionError as error:
        raise _in(where, error) from error


def _table(document: object, where: str) -> RefreshableTable:
    try:
        return parse_table(document)
    except DefinitionError as error:
        raise _in(where, error) from error


def _in(where: str, error: DefinitionError) -> DefinitionError:
    return type(error)(f"{where}, {error.where}", error.problem, hint=error.advice)


class _UniqueKeys(yaml.SafeLoader):
    """Safe YAML, in which a key that is written twice is a mistake and not an overwrite."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # the base class names it
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"key {key!r} is written twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)
