"""The page of the lineage: which tables it has, as a picture and as a list that says the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from airflow_mv_provider.api import words
from airflow_mv_provider.api.airflow_database import Declared
from airflow_mv_provider.asset import source_asset_uri, table_of_asset
from airflow_mv_provider.core.lineage.graph import (
    Edge,
    Graph,
    Node,
    NodeKind,
    around,
    components,
    graph_of,
    neighbours,
    table_id,
    visible,
    with_edges,
)
from airflow_mv_provider.core.lineage.layering import Place, drawing, places
from airflow_mv_provider.metadata.lineage import RegisteredTables
from airflow_mv_provider.metadata.overview import TableLine

PAGE_TABLES = 100
MAX_DRAWN = 150  # nodes of a picture; more cannot be followed by eye
MAX_LISTED = 500  # tables of one group
MAX_BESIDE = 20  # names in one line of the list
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 232, 44, 56, 12  # of a box, and between boxes
_MAX_NAME = 27  # characters that fit into a box
_KINDS = {
    NodeKind.SOURCE: "source",
    NodeKind.ASSET: "asset",
    NodeKind.INGESTION: "ingestion",
    NodeKind.DAG: "DAG",
    NodeKind.HIDDEN: "you may not see it",
}
_HIDDEN_NAME = "another table"


@dataclass(frozen=True, slots=True)
class Box:
    """A node as it is drawn: its name, cut to fit, and what is said of it."""

    node: Node
    name: str
    said: str
    tone: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge as it is drawn, as the path of an SVG."""

    path: str
    is_trigger: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes and arrows between them."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    width: int
    height: int
    box_width: int = _WIDTH
    box_height: int = _HEIGHT


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Some nodes beside a table, and how many more there are."""

    nodes: tuple[Node, ...]
    num_more: int


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table in the list: what it reads, what else starts its refresh, and what comes after it."""

    line: TableLine
    reads: Neighbours
    started_by: Neighbours
    after: Neighbours


@dataclass(frozen=True, slots=True)
class LineageView:
    """The data of the page.

    center       : the table around which it is; None for all tables
    picture      : None if there is too much to draw
    num_tables   : on all pages
    num_left_out : nodes, or tables of the list, that are not shown
    """

    now_ms: int
    center: str | None
    picture: Picture | None
    listed: tuple[ListedTable, ...]
    num_tables: int
    num_left_out: int
    page: int = 1
    num_pages: int = 1


def lineage_graph(found: RegisteredTables, seen: Declared, started: Declared, may_see: Callable[[str], bool]) -> Graph:
    """Return the lineage of all tables as far as a user may see it.

    seen    : the DAGs that declare each table and that the user may read
    started : by the URI of an asset, the DAGs that it starts and that the user may read
    """
    whole = graph_of(found.inputs)
    own = {each.name: {source_asset_uri(origin.name) for origin in each.origins} for each in found.inputs}
    publishes: dict[str, list[str]] = {}
    for table, dags in seen.items():
        for dag in dags if table in own else ():
            publishes.setdefault(dag.dag_id, []).append(table)
    nodes: list[Node] = []
    edges: list[Edge] = []
    for uri, dags in started.items():
        event_of = table_of_asset(uri)
        if event_of is not None and not may_see(event_of):
            continue
        start = (
            _table(event_of) if event_of is not None and event_of in own else Node(f"asset:{uri}", NodeKind.ASSET, uri)
        )
        for dag in dags:
            ends = [_table(each) for each in publishes.get(dag.dag_id, ()) if uri not in own[each]]
            if dag.dag_id not in publishes and start.kind is NodeKind.TABLE:
                ends = [Node(f"dag:{dag.dag_id}", NodeKind.DAG, dag.title)]
            nodes += [start, *ends] if ends else []
            edges += [Edge(start.id, end.id, is_trigger=True) for end in ends]
    return visible(with_edges(whole, nodes, edges), may_see)


def _table(name: str) -> Node:
    return Node(table_id(name), NodeKind.TABLE, name)


def whole_lineage(graph: Graph, found: RegisteredTables, page: int) -> LineageView:
    """Return one page of the lineage of all tables: groups without an edge between them, the largest first."""
    pages = _pages(components(graph))
    number = min(max(page, 1), max(len(pages), 1))
    here = pages[number - 1] if pages else []
    drawn = sum(len(part.nodes) for part in here) <= MAX_DRAWN
    listed = [each for part in here for each in _listed(part, found)]
    return LineageView(
        now_ms=found.now_ms,
        center=None,
        picture=_picture(here, found) if drawn and here else None,
        listed=tuple(listed[:MAX_LISTED]),
        num_tables=len(graph.tables),
        num_left_out=max(0, len(listed) - MAX_LISTED),
        page=number,
        num_pages=max(len(pages), 1),
    )


def lineage_around(graph: Graph, found: RegisteredTables, table: str) -> LineageView:
    """Return what comes before a table and after it, the nearest first."""
    near, num_left_out = around(graph, table_id(table), MAX_DRAWN)
    return LineageView(
        now_ms=found.now_ms,
        center=table,
        picture=_picture([near], found),
        listed=tuple(_listed(near, found)),
        num_tables=len(near.tables),
        num_left_out=num_left_out,
    )


def _pages(parts: Iterable[Graph]) -> list[list[Graph]]:
    """Return groups in pages of about PAGE_TABLES tables, which can be drawn unless a single group is larger."""
    pages: list[list[Graph]] = []
    num_tables = num_nodes = 0
    for part in parts:
        tables, nodes = len(part.tables), len(part.nodes)
        if not pages or num_tables + tables > PAGE_TABLES or num_nodes + nodes > MAX_DRAWN:
            pages.append([])
            num_tables = num_nodes = 0
        pages[-1].append(part)
        num_tables, num_nodes = num_tables + tables, num_nodes + nodes
    return pages


def _listed(graph: Graph, found: RegisteredTables) -> list[ListedTable]:
    lines, placed = {line.table: line for line in found.lines}, places(graph)
    to, of = neighbours(graph.edges)

    def around(ids: Iterable[str]) -> Neighbours:
        names = sorted((graph.nodes[each] for each in ids), key=lambda node: (node.name, node.id))
        return Neighbours(tuple(names[:MAX_BESIDE]), max(0, len(names) - MAX_BESIDE))

    return [
        ListedTable(
            lines[node.name],
            around(edge.start for edge in to.get(node.id, ()) if not edge.is_trigger),
            around(edge.start for edge in to.get(node.id, ()) if edge.is_trigger),
            around(edge.end for edge in of.get(node.id, ())),
        )
        for node in sorted(graph.tables, key=lambda node: placed[node.id])
    ]


def _picture(parts: Iterable[Graph], found: RegisteredTables) -> Picture:
    """Draw groups below each other."""
    lines = {line.table: line for line in found.lines}
    boxes, arrows, top, num_layers = list[Box](), list[Arrow](), 0, 0
    for graph in parts:
        drawn = drawing(graph)
        corner = {id: _corner(place, top) for id, place in drawn.nodes.items()}
        boxes += [_box(graph.nodes[id], lines, found.now_ms, *at) for id, at in corner.items()]
        for edge in graph.edges:
            passed = (_corner(place, top) for place in drawn.passes[edge])
            arrows.append(Arrow(_path((corner[edge.start], *passed, corner[edge.end])), edge.is_trigger))
        num_layers = max(num_layers, *(layer + 1 for layer, _ in drawn.nodes.values()))
        top += drawn.num_rows * (_HEIGHT + _GAP_Y)
    width = num_layers * (_WIDTH + _GAP_X) - _GAP_X
    return Picture(tuple(boxes), tuple(arrows), width, top - _GAP_Y)


def _corner(place: Place, top: int) -> tuple[int, int]:
    layer, row = place
    return layer * (_WIDTH + _GAP_X), top + row * (_HEIGHT + _GAP_Y)


def _box(node: Node, lines: dict[str, TableLine], now_ms: int, x: int, y: int) -> Box:
    name = node.name or _HIDDEN_NAME
    short = name if len(name) <= _MAX_NAME else f"…{name[1 - _MAX_NAME :]}"
    if node.kind is not NodeKind.TABLE:
        return Box(node, short, _KINDS[node.kind], "plain", x, y)
    line = lines[node.name]
    tone, word = state_of(line)
    fresh = f"as of {words.ago(line.fresh_ms, now_ms)}" if line.fresh_ms is not None else ""
    return Box(node, short, ", ".join(filter(None, (word, fresh))), tone, x, y)


def state_of(line: TableLine) -> tuple[str, str]:
    """Return the colour and the word for what is most worth knowing of a table; no word if all is well."""
    last = None if line.last is None else line.last.outcome
    if line.is_held:
        return "warn", "awaiting approval"
    if line.is_left:
        return "warn", "stalled"
    if line.obstacle is not None:
        return "bad", "stalled"
    if line.is_under_way:
        return "busy", words.phase_word(line.phase).lower()
    if last is not None and words.TONES[last] != "good":
        return words.TONES[last], words.outcome_word(last)
    if line.is_late:
        return "warn", "late"
    if line.is_paused:
        return "plain", "paused"
    return ("plain", "never refreshed") if last is None else ("good", "")


def _path(corners: Sequence[tuple[int, int]]) -> str:
    """Return a line from the right side of one box to the left side of another, straight through what is between."""
    middle = _HEIGHT // 2
    x, y = corners[0][0] + _WIDTH, corners[0][1] + middle
    path = f"M{x},{y}"
    for number, (left, at) in enumerate(corners[1:], start=2):
        is_end = number == len(corners)
        to_x, to_y = left - (6 if is_end else 0), at + middle  # an arrow needs 6
        bend = max(_GAP_X // 2, abs(to_x - x) // 2)
        path += f" C{x + bend},{y} {to_x - bend},{to_y} {to_x},{to_y}"
        if not is_end:
            x, y = left + _WIDTH, to_y
            path += f" H{x}"
    return path
