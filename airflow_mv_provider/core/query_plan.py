"""A query over pinned inputs, as SQL; and what Spark's plan of it says that it reads.

    WITH `_mv_pinned_orders` AS (SELECT * FROM delta.`/w/raw/orders` VERSION AS OF 7),
         `orders` AS (SELECT * FROM `_mv_pinned_orders`)
    SELECT * FROM (
    <the author's query>
    )

A common table expression comes before every other table of its name, leaves nothing behind in a session, and is plain
SQL, so that Spark Connect understands it. Inside the parentheses only a query is SQL: no other statement, and not two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airflow_mv_provider.core.identifier import RESERVED_PREFIX, quoted

_PINNED = f"{RESERVED_PREFIX}pinned_"
_OF_ROWS = re.compile(r"(?:\s*\+- )?(?:Project \[.*\]|SubqueryAlias .*|Relation(?:V2)?\b.*|OneRowRelation)")
_ANALYZED = re.compile(
    r"(?:^|\n)== Analyzed Logical Plan ==\n(.*?)(?:\n\n== Optimized Logical Plan ==\n|\Z)", re.DOTALL
)
_NODE = re.compile(r"(?P<indent>[ :]*(?:\+- |:- )|(?=WithCTE$))(?P<text>\S.*)")
_ROOT = "WithCTE"
# Nodes without children that read nothing: rows spelled out in the query, and references inside it.
_HARMLESS = frozenset({"OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "UnionLoopRef", "EmptyRelation"})
_MAX_SHOWN = 80


@dataclass(frozen=True, slots=True)
class _Node:
    depth: int
    text: str

    @property
    def name(self) -> str:
        return self.text.split(" ", 1)[0]

    @property
    def alias(self) -> str:
        return self.text.removeprefix("SubqueryAlias ") if self.name == "SubqueryAlias" else ""

    @property
    def is_pinned(self) -> bool:
        return self.alias.startswith(_PINNED)


def pinned_sql(sql: str, inputs: Mapping[str, str]) -> str:
    """Return `sql` with its inputs defined in front of it.

    inputs : the name of each input → the SQL of its rows at their pin
    """
    pinned = [f"{quoted(_PINNED + name)} AS ({rows})" for name, rows in inputs.items()]
    named = [
        f"{quoted(name)} AS (SELECT * FROM {quoted(_PINNED + name)})"  # nosec B608  # quoted
        for name in inputs
    ]
    query = sql.strip().removesuffix(";")
    return f"WITH {', '.join([*pinned, *named])} SELECT * FROM (\n{query}\n)"  # nosec B608  # the author's, one query


def unpinned_relation(explained: str) -> str | None:
    """Return what a query reads beside its inputs, as people know it, or None when it reads nothing else.

    explained : the answer to EXPLAIN EXTENDED of what `pinned_sql` returned
    returns   : also something when this is no plan that is understood: what is not seen to be pinned is not
    """
    found = _ANALYZED.search(explained)
    nodes = list(_nodes(found.group(1))) if found else []
    if not nodes or nodes[0].text != _ROOT:
        return "what its plan does not tell"
    above: list[_Node] = []
    for node, after in zip(nodes, [*nodes[1:], _Node(0, "")], strict=True):
        above = [one for one in above if one.depth < node.depth]
        is_leaf = after.depth <= node.depth
        if any(one.is_pinned for one in above):
            continue
        if node.name == "View" or (is_leaf and node.name not in _HARMLESS):
            return _shown(node, above[-1] if above else None)
        above.append(node)
    return None


def is_row_by_row(explained: str) -> bool:
    """True if a plan does nothing but take each row of one relation and compute columns from it.

    explained : the answer to EXPLAIN EXTENDED of a projection; what is not understood is not
    """
    found = _ANALYZED.search(explained)
    lines = found.group(1).split("\n")[1:] if found else []  # the first tells the columns
    return len(lines) > 1 and all(_OF_ROWS.fullmatch(line) for line in lines)


def _nodes(tree: str) -> Iterator[_Node]:
    """Return the tree's nodes in its order, without lines that only continue one: a text may have line breaks."""
    for line in tree.split("\n"):
        if found := _NODE.fullmatch(line):
            yield _Node(len(found["indent"]), found["text"])


def _shown(node: _Node, parent: _Node | None) -> str:
    if parent is not None and parent.alias and not parent.alias.startswith("__"):
        # Of a long path the end tells most.
        return parent.alias if len(parent.alias) <= _MAX_SHOWN else f"...{parent.alias[3 - _MAX_SHOWN :]}"
    text = re.sub(r" *\[.*?\]", "", node.text)[:_MAX_SHOWN].strip()
    return f"something without a name ({text})"
