"""What of its inputs a query needs to compute the rows of some units.

A unit column that is a column of an input is needed there only with the units' values, and so are the columns that the
query's conditions hold equal to it. This saves reading; which rows are the units' is decided by the result.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from sqlglot import exp

from airflow_mv_provider.sources.query.units.shape import (
    NotIncrementalError,
    Relation,
    clauses,
    conjuncts,
    has_equal_types,
    inputs_of,
    known_type,
    relations,
    shows_inner_rows,
    subqueries,
    unit_columns,
    unwrapped,
)

_Bound = dict[tuple[str, str], int]  # (alias, column) → the unit column that has the same value


def restrictions(query: exp.Query, units: Mapping[int, int]) -> dict[str, tuple[str, frozenset[int]]]:
    """Return for inputs the column that is restricted, and the unit columns whose values it is restricted to.

    Args:
        units: Positions of the query's unit columns → their positions among the units.

    Returns:
        Inputs that cannot be restricted are left out.
    """
    found: dict[str, list[dict[str, int]]] = defaultdict(list)
    try:
        _restrict(unwrapped(query), dict(units), {}, found)
    except NotIncrementalError:
        return {}  # a part that no change has touched is of a shape that cannot be followed
    chosen, read = {}, Counter(table.name for table in query.find_all(exp.Table))
    for name, each in found.items():
        if len(each) != read[name]:
            continue  # it is also read where nothing was looked at
        # An input that is read at several places has to be restricted by one column at all of them.
        if common := sorted(set.intersection(*(set(columns) for columns in each))):
            chosen[name] = common[0], frozenset(columns[common[0]] for columns in each)
    return chosen


def _restrict(
    query: exp.Query, units: Mapping[int, int], outer: _Bound, found: dict[str, list[dict[str, int]]]
) -> None:
    if isinstance(query, exp.SetOperation):
        same = units if has_equal_types(query) else {}
        for branch in (query.left, query.right):
            _restrict(unwrapped(branch), same, outer, found)
        return
    assert isinstance(query, exp.Select)
    sources = relations(query)
    hidden = {source.alias for source in sources}  # an outer relation of the same alias is another one
    bound: _Bound = {key: unit for key, unit in outer.items() if key[0] not in hidden}
    for position, unit in units.items():
        if isinstance(column := query.expressions[position].unalias(), exp.Column):
            bound[column.table, column.name] = unit
    _follow_equalities(query, sources, bound)
    for source in sources:
        columns = {name: unit for (alias, name), unit in bound.items() if alias == source.alias}
        if isinstance(source.node, exp.Table):
            found[source.node.name].append(columns)
        else:
            _restrict_derived(source, columns, found)
    conditions = [
        source.join.args["on"] for source in sources if source.join is not None and source.join.args.get("on")
    ]
    for clause in conditions:
        for each in subqueries(clause):
            _restrict_subquery(each, query, {}, found)
    for clause in clauses(query):
        for each in subqueries(clause):
            _restrict_subquery(each, query, bound, found)


def _follow_equalities(query: exp.Select, sources: Sequence[Relation], bound: _Bound) -> None:
    """Add the columns that conditions hold equal to bound ones."""
    for _ in sources:  # equalities lead from one relation to the next
        for each in conjuncts(query.args.get("where")):
            _equal(each, bound)
        for source in sources:
            if source.join is not None:
                for each in conjuncts(source.join.args.get("on")):
                    _equal(each, bound, only_to=_of_one_side(source, sources[0]))


def _of_one_side(source: Relation, first: Relation) -> str | None:
    """Return the only relation that a join's condition restricts; None if both are."""
    assert source.join is not None
    if source.join.side == "RIGHT":
        return first.alias
    return source.alias if source.join.side == "LEFT" or source.is_looked_up else None


def _equal(condition: exp.Expr, bound: _Bound, only_to: str | None = None) -> None:
    if not isinstance(condition, exp.EQ):
        return
    sides = condition.this, condition.expression
    if not all(isinstance(each, exp.Column) for each in sides):
        return
    one, two = (known_type(each) for each in sides)
    # Texts are equal to numbers in many spellings, which are not equal to one another.
    if one is None or one != two or one.is_type(*exp.DataType.FLOAT_TYPES):
        return
    left, right = ((each.table, each.name) for each in sides)
    for known, other in ((left, right), (right, left)):
        if known in bound and other not in bound and only_to in (None, other[0]):
            bound[other] = bound[known]


def _restrict_derived(source: Relation, columns: Mapping[str, int], found: dict[str, list[dict[str, int]]]) -> None:
    if not isinstance(source.node, exp.Subquery):
        for name in inputs_of(source.node):
            found[name].append({})
        return
    query = unwrapped(source.node)
    names = source.node.args["alias"].columns if source.node.args.get("alias") else []
    named = [each.name for each in names] or [each.alias_or_name for each in query.selects]
    try:
        possible = unit_columns(query)
    except NotIncrementalError:
        possible = frozenset()
    units = {n: columns[name] for n, name in enumerate(named) if n in possible and name in columns}
    _restrict(query, units, {}, found)


def _restrict_subquery(query: exp.Query, of: exp.Select, bound: _Bound, found: dict[str, list[dict[str, int]]]) -> None:
    inner = unwrapped(query)
    units: dict[int, int] = {}
    within = query.parent
    # NULLs among the inner values matter for NOT IN, and wherever an unknown value is not as good as false.
    required = [each for clause in ("where", "having") for each in conjuncts(of.args.get(clause))]
    is_required = any(within is each for each in required)
    if isinstance(within, exp.In) and is_required and isinstance(inner, exp.Select) and shows_inner_rows(inner):
        looked_for = within.this
        if isinstance(looked_for, exp.Column) and (looked_for.table, looked_for.name) in bound:
            units = {0: bound[looked_for.table, looked_for.name]}
    _restrict(inner, units, bound, found)
