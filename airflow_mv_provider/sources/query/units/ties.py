"""What of a query may come out otherwise each time it is computed, although its inputs are the same.

    SELECT region, count(*) FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY at) AS place FROM events)
    WHERE place = 1 GROUP BY region

If two events of an id are of one time, the table may have been computed with the one, and what finds its units with the
other one. So these look at all rows of an id: conditions on what may vary are left out of them. Where more than a
condition depends on it, such as a group or a join, the query is not followed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlglot import exp

from airflow_mv_provider.sources.query.units.shape import (
    VARYING,
    NotIncrementalError,
    Relation,
    clauses,
    conjuncts,
    definitions,
    is_aggregate,
    is_grouped,
    known_type,
    named,
    optional,
    relations,
    set_varying,
    subqueries,
    summarizes,
    tables_of,
    unwrapped,
)

_RANKS = (exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist)
_OF_ANY_ORDER = (
    *(exp.Count, exp.CountIf, exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr),
    *(exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg),
)
_AROUND = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
_Columns = frozenset[tuple[str, str]]  # (alias, column)


@dataclass(frozen=True, slots=True)
class _Found:
    """What may vary of a query.

    Attributes:
        columns: The positions of columns with other values.
        has_more: True if it has rows too many once conditions on such values are left out.
    """

    columns: frozenset[int] = frozenset()
    has_more: bool = False


def find(query: exp.Query) -> None:
    """Let `varies` be true of the columns and conditions of a query that depend on the order of rows.

    Raises:
        NotIncrementalError: If more depends on it than they.
    """
    _find(query, frozenset())


def _find(node: exp.Expr, outer: _Columns) -> _Found:
    try:
        query = unwrapped(node)
    except NotIncrementalError:
        return _Found()  # a change of its inputs is not followed
    if isinstance(query, exp.SetOperation):
        left, right = (_find(part, outer) for part in (query.left, query.right))
        if not isinstance(query, exp.Union) and (left.columns or right.columns or right.has_more):
            raise NotIncrementalError(*VARYING)
        return _Found(left.columns | right.columns, left.has_more or right.has_more)
    assert isinstance(query, exp.Select)
    try:
        sources, may_be_missing = relations(query), optional(query)
    except NotIncrementalError:
        return _Found()  # neither here
    varying, has_more = _in_relations(query, sources, may_be_missing, outer)
    has_more |= _leave_out(conjuncts(query.args.get("where")), varying)
    has_more |= _leave_out_groups(query, varying, has_more=has_more)
    group = query.args.get("group")
    grouped = group.expressions if group is not None else []
    columns = set()
    for position, selected in enumerate(query.expressions):
        value = selected.unalias()
        is_unknown = is_grouped(query) and value not in grouped and _may_be_aggregate(value)
        if is_unknown or _may_vary(value, varying, of_groups=has_more):
            set_varying(selected)
            columns.add(position)
    joined = [each.join.args["on"] for each in sources if each.join is not None and each.join.args.get("on")]
    for subquery in (each for clause in (*clauses(query), *joined) for each in subqueries(clause)):
        inner, within = _find(subquery, varying), subquery.parent
        if isinstance(within, exp.In) and (0 in inner.columns or _may_vary(within.this, varying)):
            set_varying(subquery)
    return _Found(frozenset(columns), has_more)


def _in_relations(
    select: exp.Select, sources: Sequence[Relation], may_be_missing: Collection[str], outer: _Columns
) -> tuple[_Columns, bool]:
    """Return which columns of a SELECT's relations vary, and whether there are rows too many once they are joined."""
    varying, has_more = outer, False
    for each in sources:
        inner = _Found()
        if isinstance(each.node, exp.Subquery):
            inner = _find(each.node, frozenset())
        elif _may_vary(each.node, varying):
            raise NotIncrementalError(*VARYING)
        varying |= {(each.alias, named(unwrapped(each.node))[position]) for position in inner.columns}
        on = None if each.join is None else each.join.args.get("on")
        if _leave_out(conjuncts(on), varying) or inner.has_more:
            has_more = True
            if each.join is not None and each.join.kind == "ANTI":
                raise NotIncrementalError(*VARYING)
            # With a row too many, the one is lost that stands for none.
            lost = sources[0].alias if each.join is not None and each.join.side == "RIGHT" else each.alias
            if lost in may_be_missing:
                varying |= {(lost, column.name) for column in select.find_all(exp.Column) if column.table == lost}
    if any(_may_vary(each, varying) for each in select.args.get("laterals") or ()):
        raise NotIncrementalError(*VARYING)
    return varying, has_more


def _leave_out_groups(select: exp.Select, varying: _Columns, *, has_more: bool) -> bool:
    """Leave out those of the conditions on groups and windows that may vary; return whether there is one."""
    parts = (select.args.get("having"), select.args.get("qualify"))
    found = [
        each
        for clause in parts
        if clause is not None
        for each in conjuncts(clause.this)
        if _may_be_aggregate(each) or _may_vary(each, varying, of_groups=has_more)
    ]
    for each in found:
        set_varying(each)
    return bool(found)


def _may_be_aggregate(value: exp.Expr) -> bool:
    """True if there is a function that sqlglot does not know."""
    return value.find(exp.Anonymous) is not None


def _leave_out(conditions: Sequence[exp.Expr], varying: _Columns) -> bool:
    """Leave out those of the conditions on joined rows that may vary; return whether there is one."""
    found = [each for each in conditions if _may_vary(each, varying)]
    for each in found:
        if len(tables_of(each)) > 1 and not subqueries(each):
            raise NotIncrementalError(*VARYING)  # it may be what joins them
        set_varying(each)
    return bool(found)


def _may_vary(node: exp.Expr, varying: _Columns, *, of_groups: bool = False) -> bool:
    """True if an expression may have another value.

    Args:
        of_groups: Whether the rows that it summarizes may vary.
    """
    if of_groups and summarizes(node):
        return True
    return any(
        (isinstance(each, exp.Column) and (each.table, each.name) in varying)
        or isinstance(each, exp.Limit | exp.Offset)
        or _depends_on_order(each)
        for each in node.walk()
    )


def _depends_on_order(node: exp.Expr) -> bool:
    """True if a function may return something else where rows come in another order, though sorted by the same."""
    if isinstance(node, exp.Window):
        function, frame = node.this, node.args.get("spec")
        while isinstance(function, _AROUND):
            function = function.this
        by_rows = frame is not None and str(frame.args.get("kind")).upper() != "RANGE"
        return by_rows or not (isinstance(function, _RANKS) or _is_of_any_order(function))
    return is_aggregate(node) and not _is_of_any_order(node)


def _is_of_any_order(function: exp.Expr) -> bool:
    if isinstance(function, exp.Sum):
        return _is_exact(function.this)
    return isinstance(function, _OF_ANY_ORDER)


def _is_exact(number: exp.Expr) -> bool:
    """True if numbers are whole or decimal, of which the sum is the same in any order."""
    match number:
        case exp.Paren() | exp.Neg() | exp.Sum() | exp.Min() | exp.Max():
            return _is_exact(number.this)
        case exp.Add() | exp.Sub() | exp.Mul():
            return _is_exact(number.this) and _is_exact(number.expression)
        case exp.Distinct():
            return all(map(_is_exact, number.expressions))
        case exp.Coalesce():
            return all(map(_is_exact, [number.this, *number.expressions]))
        case exp.Case() | exp.If():
            values = [each.args["true"] for each in number.args.get("ifs") or [number]]
            default = number.args.get("default") or number.args.get("false")
            return all(map(_is_exact, [*values, *([default] if default is not None else [])]))
        case exp.Literal():
            return not number.is_string and "e" not in number.name.lower()
        case exp.Count():
            return True
        case exp.Column() if of := definitions(number):
            return all(map(_is_exact, of))
    kind = known_type(number)
    return kind is not None and kind.is_type(*exp.DataType.INTEGER_TYPES, "decimal")
