"""Where the nodes of a lineage are drawn: in layers from left to right, so that each edge leads to the right if it can.

The order within a layer is improved by the barycenter method of Sugiyama, Tagawa and Toda (1981): each node goes to the
mean place of its neighbours, layer by layer, forth and back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from airflow_mv_provider.core.lineage.graph import Edge, Graph, neighbours

_SWEEPS = 4


Place = tuple[int, int]
"""A layer and a row in it; both count from 0."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Where nodes stand, by their ids, and which places an edge passes on its way through layers between its ends."""

    nodes: Mapping[str, Place]
    passes: Mapping[Edge, tuple[Place, ...]]

    @property
    def num_rows(self) -> int:
        """The rows of the fullest layer."""
        taken = (*self.nodes.values(), *(place for passed in self.passes.values() for place in passed))
        return 1 + max(row for _, row in taken)


def places(graph: Graph) -> dict[str, Place]:
    """Return the place of each node, by its id.

    cost : a few steps for each node and edge, and sorting; cycles included
    """
    names = {id: graph.nodes[id].name for id in graph.nodes}
    return _arranged(layers(graph), names, [(edge.start, edge.end) for edge in graph.edges])


def drawing(graph: Graph) -> Drawing:
    """Return the places of a picture, in which no edge passes behind a node.

    An edge that leads over several layers has a place of its own in each of them.

    cost : as `places`, and a step for each layer that an edge leads over
    """
    layer = dict(layers(graph))
    names = {id: graph.nodes[id].name for id in graph.nodes}
    steps, between = list[tuple[str, str]](), dict[Edge, list[str]]()
    for number, edge in enumerate(graph.edges):
        passed = {f"{number}/{at}": at for at in range(layer[edge.start] + 1, layer[edge.end])}
        layer |= passed
        names |= dict.fromkeys(passed, names[edge.start])
        between[edge] = list(passed)
        steps += pairwise((edge.start, *passed, edge.end))
    found = _arranged(layer, names, steps)
    passes = {edge: tuple(found[id] for id in ids) for edge, ids in between.items()}
    return Drawing({id: found[id] for id in graph.nodes}, passes)


def _arranged(layer: Mapping[str, int], names: Mapping[str, str], steps: Sequence[tuple[str, str]]) -> dict[str, Place]:
    """Return a place in its layer for each id, so that few steps cross; in the order of names where none lead."""
    rows = defaultdict[int, list[str]](list)
    for id in sorted(layer, key=lambda id: (names[id], id)):
        rows[layer[id]].append(id)
    columns = [rows[number] for number in sorted(rows)]
    before, after = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for start, end in steps:
        before[end].append(start)
        after[start].append(end)
    place = {id: row for column in columns for row, id in enumerate(column)}
    for _ in range(_SWEEPS):
        for column in columns:
            _order(column, before, place)
        for column in reversed(columns):
            _order(column, after, place)
    return {id: (number, row) for number, column in enumerate(columns) for row, id in enumerate(column)}


def layers(graph: Graph) -> dict[str, int]:
    """Return the layer of each node: right of all that comes before it; of a cycle one edge leads back."""
    forward = _without_cycles(graph)
    found = dict.fromkeys(graph.nodes, 0)
    to, of = neighbours(forward)
    waiting = {id: len(to.get(id, ())) for id in graph.nodes}
    ready = [id for id, count in waiting.items() if count == 0]
    while ready:
        id = ready.pop()
        for edge in of.get(id, ()):
            found[edge.end] = max(found[edge.end], found[id] + 1)
            waiting[edge.end] -= 1
            if waiting[edge.end] == 0:
                ready.append(edge.end)
    for id in graph.nodes:  # what nothing comes before stands beside what it leads to
        if not to.get(id) and of.get(id):
            found[id] = min(found[edge.end] for edge in of[id]) - 1
    return found


def _without_cycles(graph: Graph) -> tuple[Edge, ...]:
    """Return the edges of a graph without those that lead back, found by a search in depth.

    The search has its own stack: a chain of thousands of tables would exceed Python's.
    """
    to, of = neighbours(graph.edges)
    begins = sorted(graph.nodes, key=lambda id: (bool(to.get(id)), id))  # where nothing comes before, first
    kept: list[Edge] = []
    is_open: dict[str, bool] = {}  # by id: on the path that is searched now, or done
    for begin in begins:
        if begin in is_open:
            continue
        is_open[begin] = True
        path = [(begin, iter(of.get(begin, ())))]
        while path:
            id, edges = path[-1]
            edge = next(edges, None)
            if edge is None:
                is_open[id] = False
                path.pop()
            elif not is_open.get(edge.end, False):
                kept.append(edge)
                if edge.end not in is_open:
                    is_open[edge.end] = True
                    path.append((edge.end, iter(of.get(edge.end, ()))))
    return tuple(kept)


def _order(column: list[str], beside: Mapping[str, Sequence[str]], place: dict[str, int]) -> None:
    """Sort a layer by the mean places of its neighbours; a node without any stays about where it is."""

    def wanted(id: str) -> float:
        return _mean(place[other] for other in beside[id]) if beside.get(id) else float(place[id])

    column.sort(key=lambda id: (wanted(id), place[id]))
    place.update((id, row) for row, id in enumerate(column))


def _mean(values: Iterable[int]) -> float:
    found = list(values)
    return sum(found) / len(found)
