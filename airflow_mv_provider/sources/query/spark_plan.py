"""Build the SQL of a query over pinned inputs, and find in Spark's plan which relations it reads.

    WITH `_mv_pinned_orders` AS (SELECT * FROM delta.`/w/raw/orders` VERSION AS OF 7),
         `orders` AS (SELECT * FROM `_mv_pinned_orders`)
    SELECT * FROM (
    <the author's query>
    )

A common table expression shadows every other table of its name, leaves nothing in the session, and is plain SQL, so it
works over Spark Connect. The parentheses accept exactly one query and no other statement.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airflow_mv_provider.core.definition.identifier import RESERVED_PREFIX, quoted

_PINNED = f"{RESERVED_PREFIX}pinned_"
_OF_ROWS = re.compile(r"(?:\s*\+- )?(?:Project \[.*\]|SubqueryAlias .*|Relation(?:V2)?\b.*|OneRowRelation)")
# Spark calls these deterministic, because their value is fixed within one query, but it differs between queries. And
# aes_encrypt draws an initialization vector if none is given. tests/engine/test_determinism.py tries all others.
_CHANGING = re.compile(
    r"\b(aes_encrypt|current_catalog|current_database|current_date|current_path|current_schema|current_time"
    r"|current_timestamp|current_user|localtimestamp|now|session_user|user)\("
)
_SAMPLE = re.compile(r"^[ :]*(?:\+- |:- )?Sample\b", re.MULTILINE)  # its seed is drawn while it is parsed
# A constant text that is cast to a date; a column's name is followed by a # in the plan.
_DAY = re.compile(
    r"\b(?:try_)?(?:cast|to_(?:date|timestamp\w*))\(\s*(now|today|tomorrow|yesterday)\b(?=[^()#]*(?: as |,|\)))",
    re.IGNORECASE,
)
_TIME_OF_DAY = re.compile(r"\b(?:try_)?cast\(\s*(T?\d{1,2}:[\d:.]*)[^()#]* as timestamp", re.IGNORECASE)
# A plan shows the arguments of these functions as written, without the casts inside them.
_DAY_IN_THEM = re.compile(
    r"\b(?:between|nvl2?|ifnull|nullif|equal_null|decode|extract|date_?part)\((?:[^\n]*?[(,])?"
    r"\s*(now|today|tomorrow|yesterday)\b(?=[^()#\n]*[,)])",
    re.IGNORECASE,
)
_TIME_IN_THEM = re.compile(r"\b(?:extract|date_?part)\([^()#\n]*,\s*(T?\d{1,2}:[\d:.]*)[^()#\n]*\)", re.IGNORECASE)
_CHANGING_TEXTS = (_CHANGING, _DAY, _TIME_OF_DAY, _DAY_IN_THEM, _TIME_IN_THEM)
_ANALYZED = re.compile(
    r"(?:^|\n)== Analyzed Logical Plan ==\n(.*?)(?:\n\n== Optimized Logical Plan ==\n|\Z)", re.DOTALL
)
_OPTIMIZED = re.compile(r"\n== Optimized Logical Plan ==\n(.*?)(?:\n\n== Physical Plan ==\n|\Z)", re.DOTALL)
_NUMBERED = re.compile(r"#(\d+)L?")
_NAMED = re.compile(r"[\w.]+#(\d+)L?")
_CALLED = re.compile(r" AS ((?:(?! AS )[^#\n])+)#(\d+)L?")  # a computed attribute, which may be called anything
_COLUMNS = re.compile(r"Project \[[\w.]+#\d+L?(?:, [\w.]+#\d+L?)*\]")
_IN_TREE = re.compile(r"(?P<indent>(?:[ :] {2})*(?:[+:]- )?)(?P<text>.*)")
_NODE = re.compile(r"(?P<indent>[ :]*(?:\+- |:- )|(?=WithCTE$))(?P<text>\S.*)")
_ROOT = "WithCTE"
# Nodes without children that read no relation: rows written in the query, and references inside it.
_HARMLESS = frozenset({"OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "UnionLoopRef", "EmptyRelation"})
# What the plan of a query may consist of that only filters and computes columns.
_FILTERS = frozenset({_ROOT, "CTERelationDef", "CTERelationRef", "SubqueryAlias", "Project", "Filter", "Relation"})
_MAX_SHOWN = 80
# For a literal with a type keyword the plan shows only its value. A literal without a year changes from day to day.
_LITERAL = re.compile(
    r"\b(?:date|timestamp(?:_ltz|_ntz)?)(?>\s+|--[^\n]*\n|/\*.*?\*/)*+r?(['\"])(?!\s*(?:[-+]?\d{4}|epoch\b))(.*?)\1",
    re.IGNORECASE | re.DOTALL,
)


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

    inputs : the name of each input → the SQL of its rows at their pinned version
    """
    pinned = [f"{quoted(_PINNED + name)} AS ({rows})" for name, rows in inputs.items()]
    named = [
        f"{quoted(name)} AS (SELECT * FROM {quoted(_PINNED + name)})"  # nosec B608  # quoted
        for name in inputs
    ]
    query = sql.strip().removesuffix(";")
    return f"WITH {', '.join([*pinned, *named])} SELECT * FROM (\n{query}\n)"  # nosec B608  # the author's, one query


def unpinned_relation(explained: str) -> str | None:
    """Return the name of a relation that a query reads besides its inputs, None if there is none.

    explained : the output of EXPLAIN EXTENDED for the SQL that `pinned_sql` returned
    returns   : also a text if the plan cannot be parsed: a relation counts as pinned only if the plan proves it
    """
    found = _ANALYZED.search(explained)
    nodes = list(_nodes(found.group(1))) if found else []
    if not nodes or nodes[0].text != _ROOT:
        return "a relation that its plan does not name"
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
    """True if a plan only computes columns from each row of one relation, perhaps of some rows only.

    explained : the output of EXPLAIN EXTENDED for a projection, or for the SQL that `pinned_sql` returned; False if it
                cannot be parsed
    """
    found = _ANALYZED.search(explained)
    lines = found.group(1).split("\n")[1:] if found else []  # the first line lists the columns
    if len(lines) > 1 and all(_OF_ROWS.fullmatch(line) for line in lines):
        return True
    nodes = list(_nodes(found.group(1))) if found else []
    if len(nodes) != len(lines) or not nodes or nodes[0].text != _ROOT:
        return False
    count = Counter(node.name for node in nodes)
    # A subquery, or another part of the query, would read one of them once more.
    is_each_read_once = count["CTERelationRef"] == count["CTERelationDef"]
    return count.keys() <= _FILTERS and count["Relation"] == 1 and is_each_read_once


def optimized(explained: str) -> str:
    """Return the optimized plan of a query in a form that depends on what the query says, not on how.

    Attributes are numbered in the order in which they appear, whatever they are called; those of relations keep their
    names. Operators that only choose columns are left out, but for the first and those of the branches of a UNION,
    which are matched by their places. Letters keep their case: they may be values, such as the names of struct fields.

    Args:
        explained: The output of EXPLAIN EXTENDED; itself if it cannot be parsed, unlike that of any other text.
    """
    found = _OPTIMIZED.search(explained)
    if found is None:
        return explained
    tree = found.group(1)
    called = sorted({(each.group(1), each.group(2)) for each in _CALLED.finditer(tree)}, key=lambda e: -len(e[0]))
    lines, above = [], list[int]()
    parents: dict[int, str] = {}
    for number, line in enumerate(tree.split("\n")):
        matched = _IN_TREE.fullmatch(line)
        if matched is None:
            return explained
        depth, text = len(matched["indent"]) // 3, matched["text"]
        above = [each for each in above if each < depth]
        parents[depth] = text
        if number and _COLUMNS.fullmatch(text) and not parents.get(depth - 1, "").startswith("Union"):
            above.append(depth)
            continue
        if not text.startswith("Relation"):
            for name, attribute in called:
                text = text.replace(f"{name}#{attribute}", f"#{attribute}")
            text = _NAMED.sub(r"#\1", text)
        lines.append(f"{depth - len(above)} {text}".replace("Join Cross", "Join Inner"))
    numbers: dict[str, str] = {}
    return _NUMBERED.sub(lambda each: numbers.setdefault(each.group(1), f"#{len(numbers)}"), "\n".join(lines))


def num_aggregates(explained: str) -> int:
    """Return how many aggregations a query's plan has as it was written."""
    found = _ANALYZED.search(explained)
    return sum(node.name == "Aggregate" for node in _nodes(found.group(1))) if found else -1


def changing_value(explained: str) -> str | None:
    """Return an expression of a plan that differs between queries although Spark calls it deterministic, else None."""
    found = _ANALYZED.search(explained)
    tree = found.group(1) if found else explained
    if matched := next((found for pattern in _CHANGING_TEXTS if (found := pattern.search(tree))), None):
        return matched.group(1).lower()
    return "tablesample" if _SAMPLE.search(tree) else None


def changing_literal(sql: str) -> str | None:
    """Return a literal whose value changes from day to day, such as DATE 'today'; None if there is none."""
    found = _LITERAL.search(sql)
    return found.group(2).strip()[:_MAX_SHOWN] if found else None


def reads_more(explained: str) -> bool:
    """True if the plan of a projection contains a subquery, or cannot be parsed."""
    found = _ANALYZED.search(explained)
    return found is None or any(line.lstrip().startswith(":") for line in found.group(1).split("\n"))


def _nodes(tree: str) -> Iterator[_Node]:
    """Yield the tree's nodes in order, without the continuation lines of a text that has line breaks."""
    for line in tree.split("\n"):
        if found := _NODE.fullmatch(line):
            yield _Node(len(found["indent"]), found["text"])


def _shown(node: _Node, parent: _Node | None) -> str:
    if parent is not None and parent.alias and not parent.alias.startswith("__"):
        # The end of a long path identifies it best.
        return parent.alias if len(parent.alias) <= _MAX_SHOWN else f"...{parent.alias[3 - _MAX_SHOWN :]}"
    text = re.sub(r" *\[.*?\]", "", node.text)[:_MAX_SHOWN].strip()
    return f"something without a name ({text})"
