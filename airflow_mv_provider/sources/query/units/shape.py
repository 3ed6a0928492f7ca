"""A query as it is read: its parts, and which of its columns can be unit columns.

    shape of a query                        columns that can be
    rows of inputs, filtered and joined     all that are computed from them
    GROUP BY                                grouping expressions
    window functions                        what every PARTITION BY has
    UNION, INTERSECT, EXCEPT                what each branch allows
    outer joins                             none that come from the side whose rows may be missing

sqlglot parses and qualifies; its tree is read here and never decides of a value: see `sources.query.following`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp, parse
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from airflow_mv_provider.core.explanation import Obstacle

DIALECT = "spark"
_KINDS = ("INNER", "CROSS", "OUTER", "SEMI", "ANTI")
_PLACE = "place"
_VARIES = "varies"
# What is written without parentheses is read by precedence, of which sqlglot and Spark may think differently.
_OPERATORS = (
    *(exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.DPipe, exp.Neg),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor),
)


VARYING = (
    "a value that depends on the order of rows decides which unit a row is in",
    "make the derived table that computes it a table of its own",
)


class NotIncrementalError(Exception):
    """A query, or a change of some of its inputs, cannot be followed; the message is the reason."""

    def __init__(self, reason: str, advice: str | None = None) -> None:
        super().__init__(reason)
        self.obstacle = Obstacle(reason, advice)


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation in a query's FROM clause.

    Attributes:
        node: An input as a `Table`, a derived table as a `Subquery`, or something that reads no input.
        join: How it is joined; None for the first one.
    """

    alias: str
    node: exp.Expr
    join: exp.Join | None

    @property
    def is_looked_up(self) -> bool:
        """True if it only decides about rows of the others: LEFT SEMI JOIN, LEFT ANTI JOIN."""
        return self.join is not None and self.join.kind in ("SEMI", "ANTI")


def parsed(sql: str, columns: Mapping[str, Mapping[str, str]]) -> exp.Query:
    """Return a query with its common table expressions in place, and every column qualified.

    Args:
        columns: The columns of each input, by name → type.

    Raises:
        NotIncrementalError: If it is not understood.
    """
    lower: dict[str, object] = {
        name.lower(): {c.lower(): kind for c, kind in of.items()} for name, of in columns.items()
    }
    try:
        found = [each for each in parse(sql, dialect=DIALECT) if each is not None]
        if len(found) != 1 or not isinstance(found[0], exp.Query):
            raise NotIncrementalError("the query is not understood")
        query = _without_ctes(found[0], {})
        joined_by = {each.name.lower() for join in query.find_all(exp.Join) for each in join.args.get("using") or ()}
        qualified = qualify(query, schema=lower, dialect=DIALECT, quote_identifiers=True)
        qualified = annotate_types(qualified, schema=lower, dialect=DIALECT)
        _name_sides(qualified, joined_by)
    except NotIncrementalError:
        raise
    except Exception as error:  # a parser's own mistakes, such as RecursionError, are no reason to fail
        raise NotIncrementalError(f"the query is not understood ({_first_line(error)})") from error
    if not isinstance(qualified, exp.Query):
        raise NotIncrementalError("the query is not understood")
    for table in qualified.find_all(exp.Table):
        if table.name not in lower or table.db:
            raise NotIncrementalError(f"{table.sql(DIALECT)[:60]} is not an input")
    for relation in qualified.find_all(exp.Table, exp.Subquery):
        if relation.args.get("pivots") or relation.args.get("sample"):
            raise NotIncrementalError(
                "PIVOT and TABLESAMPLE make rows depend on all others",
                "instead of PIVOT, write GROUP BY with sum(...) FILTER (WHERE ...)",
            )
        if relation.args.get("joins") or relation.args.get("laterals"):
            raise NotIncrementalError(
                "joins in parentheses are not followed", "make them a derived table: (SELECT ... FROM ... JOIN ...)"
            )
    for place, table in enumerate(qualified.find_all(exp.Table)):
        if table.args.get("alias") and table.args["alias"].columns:
            raise NotIncrementalError(
                "names of columns behind an input's alias are not followed", "name them in a derived table"
            )
        table.meta[_PLACE] = place
    return qualified


@contextmanager
def not_too_deep() -> Iterator[None]:
    """Refuse a query whose expressions are nested deeper than Python can follow; it may be hundreds of conditions.

    Raises:
        NotIncrementalError
    """
    try:
        yield
    except RecursionError as error:
        raise NotIncrementalError(
            "its expressions are nested too deeply", "join a table of the values that a long chain of conditions names"
        ) from error


def place_of(table: exp.Expr) -> int | None:
    """Return which of the relations of a parsed query it is, also as a copy; None if it is another one's."""
    found = table.meta.get(_PLACE)
    return None if found is None else int(found)


def at_place(table: exp.Table, place: int | None) -> exp.Table:
    """Return a relation that stands for another one of a parsed query."""
    if place is not None:
        table.meta[_PLACE] = place
    return table


def varies(node: exp.Expr) -> bool:
    """True if a column or condition may be another one each time it is computed; see `ties`."""
    return bool(node.meta.get(_VARIES))


def set_varying(node: exp.Expr) -> None:
    """Let `varies` be true of a node, also of its copies."""
    node.meta[_VARIES] = True


def explicit(query: exp.Query) -> str:
    """Return a query's SQL with parentheses around each operand that is an operation itself."""
    found = query.copy()
    _parenthesize(found)
    return text(found)


def text(query: exp.Query) -> str:
    """Return a query's SQL; of Spark's dialects, Databricks' alone writes QUALIFY as it is."""
    return query.sql("databricks" if query.find(exp.Qualify) else DIALECT)


def unit_columns(query: exp.Query) -> frozenset[int]:
    """Return the positions of the columns that can be unit columns.

    Raises:
        NotIncrementalError: If there is no way to divide its rows, with the reason.
    """
    check_unlimited(query)
    match query:
        case exp.Subquery():
            return unit_columns(unwrapped(query))
        case exp.SetOperation():
            return unit_columns(unwrapped(query.left)) & unit_columns(unwrapped(query.right))
        case exp.Select():
            return _of_select(query)
        case _:
            raise NotIncrementalError(f"{type(query).__name__.upper()} is not understood")


def check_unlimited(query: exp.Expr) -> None:
    """Refuse a query of which only some rows are taken: a row that goes puts another one in its place."""
    if query.args.get("limit") or query.args.get("offset"):
        raise NotIncrementalError(
            "`LIMIT` makes every row depend on every other",
            "keep the rank as a column, row_number() OVER (PARTITION BY ...), and filter by it",
        )


def shows_inner_rows(select: exp.Select) -> bool:
    """True if the first column of a subquery's row is computed from rows of its FROM clause that no others decide of.

    Then `x IN (SELECT y ...)` looks at those with this value alone.
    """
    looked_for = select.expressions[0].unalias()
    group = select.args.get("group")
    has_totals = group is not None and any(group.args.get(kind) for kind in ("rollup", "cube", "grouping_sets"))
    is_of_one_row = not is_grouped(select) or bool(group and looked_for in group.expressions and not has_totals)
    return is_of_one_row and not windows(select) and not (select.args.get("limit") or select.args.get("offset"))


def unwrapped(node: exp.Expr) -> exp.Query:
    """Return the query in parentheses.

    Raises:
        NotIncrementalError: Also if the parentheses have a LIMIT of their own.
    """
    while isinstance(node, exp.Subquery | exp.Paren):
        check_unlimited(node)
        node = node.this
    if not isinstance(node, exp.Query):
        raise NotIncrementalError(f"{type(node).__name__.upper()} is not understood")
    return node


def relations(select: exp.Select) -> list[Relation]:
    """Return the relations of a SELECT, in the order in which they are joined."""
    first = select.args.get("from_")
    joins = select.args.get("joins") or []
    found = [] if first is None else [Relation(first.this.alias_or_name, first.this, None)]
    for join in joins:
        if join.method or join.args.get("using") or join.side == "FULL" or join.kind not in ("", *_KINDS):
            kind = join.method or join.side or join.kind or "USING"
            advice = (
                "write it as LEFT JOIN, UNION ALL the rows that only the other side has" if kind == "FULL" else None
            )
            raise NotIncrementalError(f"{kind} JOIN is not followed", advice)
        found.append(Relation(join.this.alias_or_name, join.this, join))
    if any(each.join is not None and each.join.side == "RIGHT" for each in found[2:]):
        raise NotIncrementalError(
            "RIGHT JOIN is followed only between the first two relations", "write it as LEFT JOIN"
        )
    aliases = [each.alias for each in (*found, *(select.args.get("laterals") or ()))]
    if len({*aliases}) < len(aliases):
        raise NotIncrementalError("two relations have the same alias", "give each its own")
    return found


def optional(select: exp.Select) -> frozenset[str]:
    """Return the aliases of relations whose columns may be NULL because there was no row to join."""
    found: set[str] = set()
    above: list[str] = []
    for each in relations(select):
        side = each.join.side if each.join is not None and not each.is_looked_up else ""
        if side == "LEFT":
            found.add(each.alias)
        if side == "RIGHT":
            found.update(above)
        above.append(each.alias)
    for lateral in select.args.get("laterals") or ():
        if lateral.args.get("outer") or tables_of(lateral) & found:
            found.add(lateral.alias)
    return frozenset(found)


def has_equal_types(query: exp.SetOperation) -> bool:
    """True if both parts of a UNION are known to have the same types, so that no value changes its type."""
    parts = [_known_types(unwrapped(part)) for part in (query.left, query.right)]
    return parts[0] is not None and parts[0] == parts[1]


def _known_types(query: exp.Query) -> list[exp.DataType] | None:
    if isinstance(query, exp.SetOperation):
        return _known_types(unwrapped(query.left)) if has_equal_types(query) else None
    found = [known_type(each.unalias()) for each in query.selects]
    return None if None in found else found  # type: ignore[return-value]


def known_type(value: exp.Expr) -> exp.DataType | None:
    """Return the type of a value if it is an input's column, a cast or a text: sqlglot's of others may be wrong."""
    if isinstance(value, exp.Column) and (of := definitions(value)):
        found = {known_type(each) for each in of}
        return found.pop() if len(found) == 1 else None
    is_known = is_of_input(value) or value.is_string or isinstance(value, exp.Cast)
    return None if not is_known or value.type is None or value.type.is_type("unknown", "null") else value.type


def is_of_input(value: exp.Expr) -> bool:
    """True if a value is an input's column."""
    return isinstance(value, exp.Column) and isinstance(_relation_of(value), exp.Table)


def definitions(column: exp.Column) -> list[exp.Expr]:
    """Return what a column of a derived table is computed as, in each part of a UNION; of others nothing."""
    relation = _relation_of(column)
    if not isinstance(relation, exp.Subquery):
        return []
    parts: list[exp.Expr] = [relation]
    found, position = [], None
    while parts:
        try:
            part = unwrapped(parts.pop())
        except NotIncrementalError:
            return []
        names = named(part)
        position = names.index(column.name) if position is None and column.name in names else position
        if isinstance(part, exp.SetOperation):
            parts += [part.left, part.right]
        elif position is None:
            return []
        else:
            found.append(part.selects[position].unalias())
    return found


def _relation_of(column: exp.Column) -> exp.Expr | None:
    """Return the relation that a column belongs to, in the query around it or one further out."""
    select = column.find_ancestor(exp.Select)
    while select is not None:
        for node in (select.args.get("from_"), *(select.args.get("joins") or ())):
            if node is not None and node.this.alias_or_name == column.table:
                return node.this  # type: ignore[no-any-return]
        select = select.find_ancestor(exp.Select)
    return None


def summarizes(node: exp.Expr) -> bool:
    """True if an expression has an aggregate or a window function of its own, and so is not about one joined row."""
    return any(is_aggregate(each) or isinstance(each, exp.Window) for each in own_nodes(node))


def is_grouped(select: exp.Select) -> bool:
    """True if its rows stand for groups of rows."""
    return bool(select.args.get("group") or select.args.get("having")) or any(
        is_aggregate(node) for each in select.expressions for node in own_nodes(each)
    )


def num_grouped(query: exp.Query) -> int:
    """Return how many SELECTs in a query group rows."""
    return sum(is_grouped(each) for each in query.find_all(exp.Select))


def windows(select: exp.Select) -> list[exp.Window]:
    """Return the window functions of a SELECT."""
    parts = [*select.expressions, *filter(None, [select.args.get("qualify")])]
    return [node for each in parts for node in own_nodes(each) if isinstance(node, exp.Window)]


def own_nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield an expression and its parts, but no part of a subquery in it except the subquery itself."""
    yield node
    if isinstance(node, exp.Query):
        return
    for child in node.iter_expressions():
        yield from own_nodes(child)


def subqueries(node: exp.Expr) -> list[exp.Query]:
    """Return the subqueries in an expression, without those in them."""
    return [each for each in own_nodes(node) if isinstance(each, exp.Query)]


def clauses(select: exp.Select) -> list[exp.Expr]:
    """Return the parts of a SELECT that compute and filter, other than the conditions of joins."""
    others = (select.args.get(name) for name in ("where", "having", "qualify"))
    return [*select.expressions, *(each for each in others if each is not None)]


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the conditions that all have to hold."""
    if condition is None:
        return []
    if isinstance(condition, exp.Paren | exp.Where):
        return conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return [*conjuncts(condition.left), *conjuncts(condition.right)]
    return [condition]


def tables_of(*nodes: exp.Expr) -> frozenset[str]:
    """Return the aliases whose columns are in expressions."""
    return frozenset(column.table for node in nodes for column in node.find_all(exp.Column))


def inputs_of(node: exp.Expr) -> frozenset[str]:
    """Return the inputs that a query or a relation reads."""
    return frozenset(table.name for table in node.find_all(exp.Table))


def named(select: exp.Query) -> list[str]:
    """Return the names of a query's columns."""
    return [each.alias_or_name for each in select.selects]


def _parenthesize(node: exp.Expr) -> None:
    for child in list(node.iter_expressions()):
        _parenthesize(child)
        is_chain = type(child) is type(node) and isinstance(node, exp.Connector)  # a AND b AND c, of any length
        if isinstance(child, _OPERATORS) and isinstance(node, _OPERATORS) and not is_chain:
            paren = exp.Paren()
            child.replace(paren)
            paren.set("this", child)


def _of_select(select: exp.Select) -> frozenset[int]:
    group, grouped = select.args.get("group"), is_grouped(select)
    if group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
        raise NotIncrementalError(
            "ROLLUP, CUBE and GROUPING SETS make rows that stand for many groups",
            "make a table with GROUP BY, and one of the sums over it",
        )
    if group is not None and group.args.get("all"):
        raise NotIncrementalError("GROUP BY ALL is not followed", "name the columns")
    if grouped and not (group and group.expressions):
        raise NotIncrementalError(
            "without GROUP BY, one row depends on every row",
            "make a table with GROUP BY, such as by day, and the one row a table over it",
        )
    if select.args.get("match") or select.args.get("pivots"):
        raise NotIncrementalError("PIVOT and MATCH_RECOGNIZE are not followed")
    if select.args.get("windows"):
        raise NotIncrementalError("a named window is not followed", "write it in OVER (...)")
    over = windows(select)
    if any(not each.args.get("partition_by") for each in over):
        raise NotIncrementalError(
            "a window function without PARTITION BY makes every row depend on every other", "add PARTITION BY"
        )
    may_be_missing = optional(select)
    found = []
    for position, selected in enumerate(select.expressions):
        each = selected.unalias()
        of = tables_of(each)
        is_plain = bool(of) and not of & may_be_missing and not subqueries(each)
        is_plain = is_plain and not any(is_aggregate(n) or isinstance(n, exp.Window) for n in own_nodes(each))
        is_in_groups = group is None or each in group.expressions
        if is_plain and is_in_groups and all(each in window.args["partition_by"] for window in over):
            found.append(position)
    stable = frozenset(position for position in found if not varies(select.expressions[position]))
    if found and not stable:
        raise NotIncrementalError(*VARYING)
    return stable


def is_aggregate(node: exp.Expr) -> bool:
    """True if a node is an aggregate function, and not one over a window."""
    if not isinstance(node, exp.AggFunc):
        return False
    above: exp.Expr = node
    while isinstance(above.parent, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        above = above.parent
    return not (isinstance(above.parent, exp.Window) and above.parent.this is above)


def _without_ctes(query: exp.Query, above: Mapping[str, exp.CTE]) -> exp.Query:
    """Replace references to common table expressions by what they stand for."""
    known = dict(above)
    scope = query.args.get("with_")
    if scope is not None:
        if scope.recursive:
            raise NotIncrementalError("WITH RECURSIVE is not followed")
        for cte in scope.expressions:
            cte.set("this", _without_ctes(unwrapped(cte.this), known))
            known[cte.alias.lower()] = cte
        query.set("with_", None)
    for node in list(_until_queries(query)):
        if isinstance(node, exp.Query):
            node.replace(_without_ctes(node, known))
        elif isinstance(node, exp.Table) and not node.db and (cte := known.get(node.name.lower())) is not None:
            names = node.args["alias"].columns if node.args.get("alias") else []
            alias = exp.TableAlias(
                this=exp.to_identifier(node.alias_or_name),
                columns=[each.copy() for each in names or cte.args["alias"].columns],
            )
            node.replace(exp.Subquery(this=cte.this.copy(), alias=alias, **_modifiers(node)))
    return query


def _name_sides(query: exp.Expr, names: Collection[str]) -> None:
    """Let a column that USING has joined be that of the side whose rows are never missing; sqlglot takes both."""
    for value in list(query.find_all(exp.Coalesce)):
        first, *others = value.this, *value.expressions
        select = value.find_ancestor(exp.Select)
        if select is None or not all(isinstance(each, exp.Column) and each.name in names for each in (first, *others)):
            continue
        joins = {each.this.alias_or_name: each for each in select.args.get("joins") or ()}
        of = [joins.get(each.table) for each in others]
        if not all(
            join is not None and exp.EQ(this=first.copy(), expression=each.copy()) in conjuncts(join.args.get("on"))
            for join, each in zip(of, others, strict=True)
        ):
            continue
        sides = [join.side for join in of if join is not None]
        if all(side in ("", "LEFT") for side in sides):
            value.replace(first)
        elif sides == ["RIGHT"]:
            value.replace(others[0])


def _until_queries(query: exp.Expr) -> Iterator[exp.Expr]:
    for child in query.iter_expressions():
        yield child
        if not isinstance(child, exp.Query):
            yield from _until_queries(child)


def _modifiers(table: exp.Table) -> dict[str, object]:
    return {name: value for name in ("pivots", "sample") if (value := table.args.get(name))}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0].rstrip(".")[:120]


def sequence(query: exp.Query, names: Sequence[str]) -> list[int]:
    """Return the positions of columns by name, whatever the case of their letters."""
    found = [name.lower() for name in named(query)]
    return [found.index(name.lower()) for name in names if name.lower() in found]
