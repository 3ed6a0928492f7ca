"""Read table definitions from YAML: `{"tables": [...]}`, several per file, and the options of their DAGs: `dags`.

Sources that several tables share are in `ingestions`; a source of type `output` is replaced by what it stands for.

Errors contain the line of each problem. YAML and cron need third-party libraries, so they are parsed here and not in
`core`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from airflow_mv_provider.core.definition.dag_options import DagOptions, options_of
from airflow_mv_provider.core.definition.ingestion import Ingestion, parse_ingestion, resolved
from airflow_mv_provider.core.definition.problems import Problem, nearest, sentence
from airflow_mv_provider.core.definition.table import RefreshableTable, parse_table
from airflow_mv_provider.exceptions import ArgumentError, DefinitionError

_TOP = ("tables", "dags", "ingestions")
_QUARTERLY = {"@quarterly": "0 0 1 */3 *"}  # only Airflow has this preset; croniter has all others
_WITHOUT_TIMES = ("@once", "@continuous")
_BY_TIME = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@quarterly", "@yearly", "@annually")
_PRESETS = (*_BY_TIME, *_WITHOUT_TIMES)
_NUM_FIELDS = (5, 6, 7)  # the sixth is seconds, the seventh years
_MERGE = "tag:yaml.org,2002:merge"
_MAX_SHOWN = 60
_MAX_BYTES = 16_000_000  # /dev/zero has no end

Place = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class DefinitionFile:
    """The content of a file: tables and ingestions in its order, and the options of each table's DAG by its name."""

    tables: tuple[RefreshableTable, ...]
    dags: dict[str, DagOptions]
    ingestions: tuple[Ingestion, ...] = ()
    ingestion_dags: dict[str, DagOptions] = field(default_factory=dict)


def load(path: str | Path) -> tuple[RefreshableTable, ...]:
    """Return the definitions in a file, in its order.

    Raises:
        ArgumentError: For a file that cannot be read.
        DefinitionError: With the file.
    """
    return load_file(path).tables


def load_all(paths: Sequence[str | Path]) -> list[RefreshableTable]:
    """Return the definitions in several files.

    Raises:
        ArgumentError: For a file that cannot be read.
        DefinitionError: Also if two files define the same table.
    """
    found: dict[str, str] = {}
    definitions = []
    for path in paths:
        for definition in load(path):
            if (other := found.setdefault(definition.name, str(path))) != str(path):
                raise DefinitionError(str(path), f"table {definition.name!r} is also defined in {other}.")
            definitions.append(definition)
    return definitions


def load_file(path: str | Path) -> DefinitionFile:
    """Return everything in a file; raises what `load` does."""
    return parse_file(_text_of(path), where=str(path))


def load_source(path: str | Path) -> object:
    """Return the one source in a file, `{"source": {...}}`, as it is written there.

    Raises:
        ArgumentError, DefinitionError: As `load`.
    """
    _, document = _read(_text_of(path), str(path))
    if not isinstance(document, dict) or set(document) != {"source"}:
        hint = "Write it as in a table's definition: `source:`, and below it `type` and the rest."
        raise DefinitionError(str(path), "expected one key, `source`.", hint=hint)
    return document["source"]


def _text_of(path: str | Path) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise DefinitionError(str(path), f"the file is longer than {_MAX_BYTES:,} bytes.", hint="Check the path.")
        return data.decode("utf-8")
    except OSError as error:
        raise ArgumentError(str(path), f"the file cannot be read: {error.strerror}.", hint="Check the path.") from error
    except UnicodeDecodeError as error:
        raise DefinitionError(str(path), "the file is not UTF-8 text.") from error


def parse(text: str, *, where: str = "definitions") -> tuple[RefreshableTable, ...]:
    """Return the definitions in a YAML text; raises what `parse_file` does."""
    return parse_file(text, where=where).tables


def parse_file(text: str, *, where: str = "definitions") -> DefinitionFile:
    """Return everything in a YAML text; safe YAML only, no tags, no duplicate names.

    Raises:
        DefinitionError
    """
    root, document = _read(text, where)
    if not isinstance(document, dict) or not isinstance(document.get("tables"), list):
        raise DefinitionError(where, "expected one key, `tables`, with a list.")
    if unknown := [str(key) for key in document if key not in _TOP]:
        at = _at(root, (unknown[0],))
        problem = f"{at}unknown key {unknown[0][:_MAX_SHOWN]!r} next to `tables`{nearest(unknown[0], _TOP)}."
        raise DefinitionError(where, problem)
    ingestions = _ingestions(document.get("ingestions"), where, root)
    tables = tuple(_table(each, where, root, ("tables", n), ingestions) for n, each in enumerate(document["tables"]))
    _check_once(where, "table", [table.name for table in tables])
    dags = document.get("dags")
    try:
        of_tables, of_ingestions = options_of(dags, tables, ingestions)
        for name, options in (*of_tables.items(), *of_ingestions.items()):
            check_schedule(name, options)
    except DefinitionError as error:
        raise _in(where, error, root, ("dags",)) from error
    return DefinitionFile(tables, of_tables, ingestions, of_ingestions)


def check_schedule(table: str, options: DagOptions) -> None:
    """Refuse a schedule that Airflow would reject when it creates the DAG.

    raises : DefinitionError
    """
    schedule = options.schedule
    if schedule in (None, "source"):
        return
    problem = _schedule_problem(schedule, options)
    if problem is not None:
        found = Problem(("schedule",), problem)
        hint = "Give a cron expression (`0 6 * * *`), a preset (`@daily`), `source`, or null."
        raise DefinitionError(f"dags of {table!r}", sentence([found]), hint=hint, table=table, problems=(found,))


def _schedule_problem(schedule: str, options: DagOptions) -> str | None:
    from croniter import CroniterError, croniter  # the import takes a third of a second, and few files have a schedule

    shown = repr(schedule[:_MAX_SHOWN])
    if schedule in _WITHOUT_TIMES:
        if options.interval is not None:
            return f"{shown} has no intervals, and interval needs them"
        return "@continuous needs max_active_runs: 1" if _is_crowded(schedule, options) else None
    if schedule.lower() not in _PRESETS and len(schedule.split()) not in _NUM_FIELDS:
        expected = f"expected the five fields of a cron expression, or one of {', '.join(_PRESETS)}, source"
        return f"{shown} is not a schedule{nearest(schedule, (*_PRESETS, 'source'))}: {expected}"
    try:
        croniter(_QUARTERLY.get(schedule, schedule), datetime(2026, 1, 1, tzinfo=UTC)).get_next(datetime)
    except (CroniterError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        return f"{shown} is not a schedule: {str(error).rstrip('. ')[:200]}"
    return None


def _is_crowded(schedule: str, options: DagOptions) -> bool:
    return schedule == "@continuous" and options.max_active_runs != 1


def _read(text: str, where: str) -> tuple[yaml.Node | None, object]:
    """Return the text's nodes, which have line numbers, and its values."""
    try:
        loader = _UniqueKeys(text)
        try:
            root = loader.get_single_node()
            return root, None if root is None else loader.construct_document(root)
        finally:
            loader.dispose()
    except RecursionError as error:
        raise DefinitionError(where, "the file is nested too deeply.") from error
    except yaml.YAMLError as error:
        line = getattr(error, "problem_mark", None)
        at = f" in line {line.line + 1}" if line else ""
        raise DefinitionError(
            where, f"the file is not YAML{at}: {getattr(error, 'problem', None) or 'see the file'}."
        ) from error


def _ingestions(document: object, where: str, root: yaml.Node | None) -> tuple[Ingestion, ...]:
    if document is None:
        return ()
    if not isinstance(document, list):
        raise DefinitionError(where, f"{_at(root, ('ingestions',))}`ingestions` is a list.")
    found = []
    for n, each in enumerate(document):
        try:
            found.append(parse_ingestion(each))
        except DefinitionError as error:
            raise _in(where, error, root, ("ingestions", n)) from error
    _check_once(where, "ingestion", [each.name for each in found])
    return tuple(found)


def _check_once(where: str, what: str, names: Sequence[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DefinitionError(where, f"{what} {twice[0]!r} is defined twice.")


def _table(
    document: object, where: str, root: yaml.Node | None, place: Place, ingestions: Sequence[Ingestion]
) -> RefreshableTable:
    try:
        return parse_table(resolved(document, ingestions))
    except DefinitionError as error:
        raise _in(where, error, root, place) from error


def _in(where: str, error: DefinitionError, root: yaml.Node | None, place: Place) -> DefinitionError:
    """Return the error with its file, and the line of each problem."""
    problems: tuple[Problem, ...] = error.facts.get("problems", ())
    if not problems:
        return type(error)(f"{where}, {error.where}", f"{_at(root, place)}{error.problem}", hint=error.advice)
    text = sentence(f"{_at(root, *_places(place, error, problem))}{problem}" for problem in problems)
    return type(error)(f"{where}, {error.where}", text, hint=error.advice, problems=problems)


def _places(place: Place, error: DefinitionError, problem: Problem) -> Iterator[Place]:
    """Return the possible places of a problem: for a DAG's options, the table's own options and the defaults."""
    if place == ("dags",) and problem.place[:1] not in (("tables",), ("ingestions",)):
        for section in ("tables", "ingestions"):
            yield (*place, section, error.facts.get("table", ""), *problem.place)
        yield (*place, "defaults", *problem.place)
    else:
        yield (*place, *problem.place)


def _at(root: yaml.Node | None, *places: Place) -> str:
    """Return in words the line of the place that exists to the greatest depth; "" if none exists at all."""
    depth, line = max((_line(root, place) for place in places), key=lambda found: found[0])
    return f"line {line + 1}, " if depth else ""


def _line(node: yaml.Node | None, place: Place) -> tuple[int, int]:
    """Return how many leading names of a place exist in the document, and the line of the last one that does."""
    line = 0
    for depth, name in enumerate(place):
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == str(name)), None)
            if found is None:
                return depth, line
            line, node = found[0].start_mark.line, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(name, int) and name < len(node.value):
            node = node.value[name]
            line = node.start_mark.line
        else:
            return depth, line
    return len(place), line


class _UniqueKeys(yaml.SafeLoader):
    """Safe YAML, in which a duplicate key is an error and does not overwrite.

    Dates are read as text: a column may hold 2024-02-30, and the meaning of a value depends on its field.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012  # as the base class has it
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag not in self.yaml_constructors:
            problem = "a merge key (<<) is not supported: write its names out" if node.tag == _MERGE else None
            raise yaml.constructor.ConstructorError(
                problem=problem or f"the tag {node.tag.replace('tag:yaml.org,2002:', '!!')!r} is not supported",
                problem_mark=node.start_mark,
            )
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            # A text that does not fit its tag (!!int abc), or a number with more digits than Python parses.
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                problem=f"the value is not a valid {kind}", problem_mark=node.start_mark
            ) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen = set()
        pairs = node.value if node.id == "mapping" else ()  # the base class reports other nodes
        for key_node, _ in pairs:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # the base class reports it
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"key {key!r} appears twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)
