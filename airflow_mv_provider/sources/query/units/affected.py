"""Queries for the units that a change of a query's inputs can have touched.

A unit's rows can differ only if a joined tuple of it came or went. So each input in turn is replaced by its rows that
went, the others as they were before, and by its rows that came, the others as they are after; what is computed of the
tuples, and what filters groups, is left out. More units than are touched do no harm.

    an outer join that may find no row     its changed rows are joined as if it were an inner one; conditions on the
                                           side that may be missing are left out, because they hold for missing rows
    EXISTS, IN, a subquery's value         the rows that it may look at, joined by its conditions with the outer rows
    x NOT IN (SELECT y ...)                the same where x = y, where x is NULL, and where y is
    a derived table                        its changed rows: computed from changed rows if it only joins and filters,
                                           else its own affected units; all of their rows, before and after, if more
                                           of it is used than unit columns
    conditions that depend on the order    left out; see `ties`
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from sqlglot import exp

from airflow_mv_provider.sources.query.units.shape import (
    VARYING,
    NotIncrementalError,
    Relation,
    at_place,
    check_unlimited,
    clauses,
    conjuncts,
    has_equal_types,
    inputs_of,
    is_grouped,
    named,
    optional,
    place_of,
    relations,
    set_varying,
    shows_inner_rows,
    subqueries,
    summarizes,
    tables_of,
    unit_columns,
    unwrapped,
    varies,
    windows,
)

Part = Literal["before", "after", "gone", "came"]
Named = Callable[[str, Part], str]
"""The name of a relation that has an input's rows before or after the change, or those that are gone or came."""
_SIDES: dict[Part, Part] = {"gone": "before", "came": "after"}
_CHANGED = "changed"
# Two values of these types are equal exactly if they are the same.
_SORTED_OUT: tuple[exp.DType | str, ...] = (
    *exp.DataType.INTEGER_TYPES,
    *exp.DataType.TEMPORAL_TYPES,
    "decimal",
    "text",
    "boolean",
)
_NOT_COMPARABLE = ("map", "variant", "geometry", "geography")
_QueryT = TypeVar("_QueryT", bound=exp.Query)


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed.

    Attributes:
        inputs: The names of the inputs that have.
        name: Of the relations with their rows.
    """

    inputs: Collection[str]
    name: Named

    def touch(self, node: exp.Expr) -> bool:
        """Return whether a query or a relation reads an input that has changed."""
        return bool(inputs_of(node) & set(self.inputs))


def affected(query: exp.Query, units: Sequence[int], changes: Changes) -> list[exp.Select]:
    """Return queries that together have all units that may differ, with the names of the query's columns.

    Args:
        units: The positions of the unit columns.

    Raises:
        NotIncrementalError: If a change of one of the inputs can touch every row.
    """
    found = _affected(unwrapped(query), units, changes)
    gone = {changes.name(name, "gone") for name in changes.inputs}
    looked_at = {place_of(table) for each in found for table in each.find_all(exp.Table) if table.name in gone}
    for table in query.find_all(exp.Table):
        if table.name in changes.inputs and place_of(table) not in looked_at:
            raise NotIncrementalError(f"what a change of {table.name} touches is not known")
    return found


def _affected(query: exp.Query, units: Sequence[int], changes: Changes) -> list[exp.Select]:
    names = named(query)
    if isinstance(query, exp.SetOperation):
        branches = (unwrapped(query.left), unwrapped(query.right))
        found = []
        for branch, other in (branches, branches[::-1]):
            parts = _affected(branch, units, changes)
            found += parts if has_equal_types(query) else [_cast_with(part, other, units, changes) for part in parts]
        return [_called(each, [names[unit] for unit in units]) for each in found]
    assert isinstance(query, exp.Select)
    wanted = [query.expressions[position].unalias().as_(names[position], quoted=True) for position in units]
    return [*_by_relations(query, wanted, changes), *_by_subqueries(query, wanted, changes)]


def _cast_with(part: exp.Select, other: exp.Query, units: Sequence[int], changes: Changes) -> exp.Select:
    """Return a part of a UNION with the types that the other one's give it: Spark casts from one UNION to the next."""
    names = named(part)
    none = exp.Subquery(this=_at(other, "after", changes), alias=_table_alias("_mv_rows"))
    columns = [exp.column(named(other)[unit], "_mv_rows", quoted=True) for unit in units]
    both = exp.union(part, exp.select(*columns).from_(none).where(exp.false()), distinct=False, copy=False)
    found = exp.Subquery(this=both, alias=_table_alias("_mv_cast"))
    return exp.select(*(exp.column(name, "_mv_cast", quoted=True) for name in names)).from_(found)


def _by_relations(
    select: exp.Select, wanted: Sequence[exp.Expr], changes: Changes, only: Collection[str] | None = None
) -> list[exp.Select]:
    """Return the units of the tuples in which a relation has changed rows.

    Args:
        only: The relations that are looked at; None for all.
    """
    found: list[exp.Select] = []
    for position, each in enumerate(relations(select)):
        if changes.touch(each.node) and (only is None or each.alias in only):
            used = _columns(each.alias, [*wanted, *_joining(select), *_conditions(select, wanted, changes)])
            is_looked_up = each.is_looked_up or only is not None
            for sign, side in _SIDES.items():
                rows = _changed_rows(each, sign, changes, used.keys())
                found += [_joined(select, position, some, wanted, side, changes, is_looked_up) for some in rows]
    return found


def _joining(select: exp.Select) -> list[exp.Expr]:
    """Return what joins a SELECT's relations, other than conditions in WHERE."""
    joins = select.args.get("joins") or ()
    conditions = [each for join in joins for each in conjuncts(join.args.get("on")) if not varies(each)]
    return [*conditions, *(select.args.get("laterals") or ())]


def _conditions(select: exp.Select, wanted: Sequence[exp.Expr], changes: Changes) -> list[exp.Expr]:
    """Return conditions that the tuples before fulfil and those after.

    A subquery costs more than it leaves out, but what is computed of a row may fail for one that it leaves out.
    """
    is_computed = not all(isinstance(each.unalias(), exp.Column) for each in wanted)
    return [
        each
        for each in conjuncts(select.args.get("where"))
        if not varies(each) and (not subqueries(each) or (is_computed and not changes.touch(each)))
    ]


def _columns(alias: str, nodes: Iterable[exp.Expr]) -> dict[str, exp.Column]:
    """Return a relation's columns in expressions, but not those of another one of its alias in a query there."""
    found: dict[str, exp.Column] = {}
    for node in nodes:
        if isinstance(node, exp.Column) and node.table == alias:
            found[node.name] = node
        within = [node.args.get("from_"), *(node.args.get("joins") or ())] if isinstance(node, exp.Select) else []
        if not any(each is not None and each.this.alias_or_name == alias for each in within):
            found |= _columns(alias, node.iter_expressions())
    return found


def _joined(
    select: exp.Select,
    position: int,
    rows: exp.Expr,
    wanted: Sequence[exp.Expr],
    side: Part,
    changes: Changes,
    is_looked_up: bool,
) -> exp.Select:
    """Return the wanted columns of the tuples of a SELECT in which one of its relations has only some rows.

    Args:
        is_looked_up: Whether that relation only decides about rows of the others.
    """
    sources = relations(select)
    changed = sources[position]
    missing: set[str] = set()
    first, joins = exp.From(this=rows), []
    for number, each in enumerate(sources):
        node = rows if number == position else _at(each.node, side, changes)
        if each.join is None:
            first = exp.From(this=node)
            continue
        on = None if each.join.args.get("on") is None else _at(_stable(each.join.args["on"]), side, changes)
        join = exp.Join(this=node, side=each.join.side, kind=each.join.kind, on=on)
        is_outer = each.join.side in ("LEFT", "RIGHT") and not each.is_looked_up
        if number == position and (each.is_looked_up or each.join.side == "LEFT"):
            join = exp.Join(this=node, on=on)
            missing |= {each.alias}
        elif is_outer and each.join.side == "RIGHT" and position == 0:
            join = exp.Join(this=node, on=on)
            missing |= {changed.alias}
        elif tables_of(each.join) & missing:
            missing |= {each.alias}
            continue
        joins.append(join)
    laterals = []
    for lateral in select.args.get("laterals") or ():
        if tables_of(lateral) & missing:
            missing |= {lateral.alias}
        else:
            laterals.append(_at(lateral, side, changes))
    if tables_of(*wanted) & missing:
        raise NotIncrementalError(
            f"rows of {changed.alias} may be missing, and decide which unit a row is in",
            "take the key's columns from the other side of the outer join",
        )
    conditions = [
        _at(each, side, changes) for each in _conditions(select, wanted, changes) if not tables_of(each) & missing
    ]
    if any(map(summarizes, conditions)):
        raise NotIncrementalError(
            "an aggregate or a window next to a subquery is not followed", "compute it in a derived table"
        )
    found = exp.Select(expressions=[each.copy() for each in wanted], from_=first, joins=joins, laterals=laterals)
    found.meta[_CHANGED] = changed.alias
    found = found.where(*conditions, copy=False) if conditions else found
    if is_looked_up:
        used = _columns(changed.alias, [*found.expressions, *_joining(found), *conditions])
        rows.replace(_each_once(rows, changed.alias, used.values()))
    return _beginning_with(changed.alias, found)


def _each_once(rows: exp.Expr, alias: str, used: Collection[exp.Column]) -> exp.Expr:
    """Return what is used of rows, each once, so that few pairs with the other relations' rows are alike."""
    if not all(each.type is not None and each.type.is_type(*_SORTED_OUT) for each in used):
        return rows.copy()
    columns = [exp.column(each.name, alias, quoted=True) for each in used]
    found = exp.Select(
        expressions=columns or [exp.Literal.number(1).as_("_mv_any", quoted=True)],
        distinct=exp.Distinct(),
        from_=exp.From(this=rows.copy()),
    )
    return exp.Subquery(this=found, alias=_table_alias(alias))


def _beginning_with(alias: str, select: exp.Select) -> exp.Select:
    """Let a SELECT begin with one of its relations if that has few rows and an inner join: Spark keeps the order.

    Relations with inner joins come first, and their conditions to WHERE, which outer joins after them do not change.
    """
    sources = relations(select)
    movable: set[str] = set()
    for each in sources:
        on = None if each.join is None else each.join.args.get("on")
        is_free = _is_inner(each) and not isinstance(each.node, exp.Lateral)
        if is_free and (on is None or tables_of(on) <= movable | {each.alias}):
            movable.add(each.alias)
    moved = [each for each in sources if each.alias in movable]
    conditions = [c for each in moved if each.join is not None for c in conjuncts(each.join.args.get("on"))]
    links = map(tables_of, [*conjuncts(select.args.get("where")), *conditions])
    is_linked = any(alias in of and len(of) > 1 and of <= movable for of in links)
    if not is_linked or any(each.join is not None and each.join.side == "RIGHT" for each in sources):
        return select
    first = next(each for each in moved if each.alias == alias)
    others = [exp.Join(this=each.node, kind="CROSS") for each in moved if each is not first]
    others += [each.join for each in sources if each.alias not in movable and each.join is not None]
    select.set("from_", exp.From(this=first.node))
    select.set("joins", others)
    return select.where(*conditions, copy=False) if conditions else select


def _is_inner(relation: Relation) -> bool:
    join = relation.join
    return join is None or (not join.side and join.kind in ("", "INNER", "CROSS"))


def _by_subqueries(
    select: exp.Select, wanted: Sequence[exp.Expr], changes: Changes, prefix: str = "_mv_"
) -> list[exp.Select]:
    """Return the units of outer rows for which a subquery may look at changed rows."""
    found: list[exp.Select] = []
    _check_elsewhere(select, changes)
    queries = [query for clause in clauses(select) for query in subqueries(clause)]
    for number, query in enumerate(queries):
        if changes.touch(query):
            if varies(query):
                raise NotIncrementalError(*VARYING)
            outer = {each.alias for each in (*relations(select), *(select.args.get("laterals") or ()))}
            links = _links(select, query)
            for link in links:
                flat, inner = _flattened(select, query, link, wanted, f"{prefix}{number}_")
                parts = [
                    *_by_relations(flat, wanted, changes, only=inner),
                    *_by_subqueries(flat, wanted, changes, f"{prefix}{number}_"),
                ]
                if link is links[0]:
                    for part in parts:
                        _check_linked(part, outer, query)
                found += parts
    return found


def _check_elsewhere(select: exp.Select, changes: Changes) -> None:
    """Refuse subqueries that are looked at nowhere else."""
    conditions = [each.join.args.get("on") for each in relations(select) if each.join is not None]
    others = [*conditions, *(select.args.get("laterals") or ()), select.args.get("group")]
    if any(changes.touch(query) for each in others if each is not None for query in subqueries(each)):
        raise NotIncrementalError(
            "a subquery in a join's condition, LATERAL VIEW or GROUP BY is not followed", "join its relation instead"
        )


@dataclass(frozen=True, slots=True)
class _Link:
    """What has to hold for an outer and an inner row of `x IN (SELECT y ...)` for the one to depend on the other.

    Attributes:
        outer: x; None if that does not matter.
        inner: y; likewise.
    """

    outer: exp.Expr | None = None
    inner: exp.Expr | None = None

    @property
    def condition(self) -> exp.Expr | None:
        if self.outer is not None and self.inner is not None:
            return exp.EQ(this=exp.Paren(this=self.outer), expression=exp.Paren(this=self.inner))
        value = self.outer or self.inner
        return None if value is None else exp.Is(this=exp.Paren(this=value), expression=exp.null())


def _links(select: exp.Select, query: exp.Query) -> list[_Link]:
    """Return of which links one holds; first that by which rows are found, if there is any.

    NULL on either side makes IN unknown. Where it filters rows that is the same as false, but NOT IN is not true.
    """
    within, inner = query.parent, unwrapped(query)
    if not isinstance(within, exp.In) or query.arg_key != "query" or isinstance(query.this, exp.Subquery):
        return [_Link()]  # among them x IN (1, (SELECT ...)), in which it is one value
    if isinstance(within.this.unnest(), exp.Tuple | exp.Struct):
        return [_Link()]
    if not isinstance(inner, exp.Select) or not shows_inner_rows(inner):
        return [_Link()]
    outer, value = within.this, inner.expressions[0].unalias()
    filters = any(each is within for each in conjuncts(select.args.get("where")))
    return [_Link(outer, value)] if filters else [_Link(outer, value), _Link(outer=outer), _Link(inner=value)]


def _flattened(
    select: exp.Select, query: exp.Query, link: _Link, wanted: Sequence[exp.Expr], prefix: str
) -> tuple[exp.Select, frozenset[str]]:
    """Return a SELECT that joins the rows of a subquery, by its own conditions, and the aliases of these rows.

    Its conditions have the subqueries of that subquery.
    """
    inner = unwrapped(query)
    if not isinstance(inner, exp.Select):
        raise NotIncrementalError("UNION in a subquery of a condition is not followed", "write two conditions with OR")
    if inner.args.get("laterals"):
        raise NotIncrementalError(
            "LATERAL VIEW in a subquery of a condition is not followed", "join a derived table instead"
        )
    inner = inner.copy()
    link = _Link(link.outer and link.outer.copy(), link.inner and link.inner.copy())
    aliases = {each.alias: f"{prefix}{each.alias}" for each in relations(inner)}
    for node in [*inner.iter_expressions(), *([link.inner] if link.inner is not None else [])]:
        _rename(node, aliases)
    joins = []
    for each in relations(inner):
        each.node.set("alias", _alias(each.node, aliases[each.alias]))
        joins.append(exp.Join(this=each.node, kind="CROSS") if each.join is None else each.join)
    nested = [each for each in clauses(inner) if not isinstance(each, exp.Where) and subqueries(each)]
    conditions = [each for each in conjuncts(select.args.get("where")) if not subqueries(each)]
    conditions += conjuncts(inner.args.get("where"))
    for clause in nested:
        # What is computed beside them filters nothing; it is here for the subqueries in it.
        beside = exp.Coalesce(this=clause.unalias(), expressions=[exp.true()])
        set_varying(beside)
        conditions.append(beside)
    if link.condition is not None:
        conditions.append(link.condition)
    flat = exp.Select(
        expressions=[each.copy() for each in wanted],
        from_=select.args["from_"].copy(),
        joins=[*(each.copy() for each in select.args.get("joins") or ()), *joins],
        laterals=[each.copy() for each in select.args.get("laterals") or ()],
    )
    return flat.where(*(each.unalias().copy() for each in conditions), copy=False), frozenset(aliases.values())


def _rename(node: exp.Expr, aliases: Mapping[str, str]) -> None:
    """Give relations other aliases in an expression, but not where a query in it has relations of the same alias."""
    if isinstance(node, exp.Column) and node.table in aliases:
        node.set("table", exp.to_identifier(aliases[node.table], quoted=True))
    if isinstance(node, exp.Select):
        hidden = {each.alias for each in relations(node)}
        hidden |= {lateral.alias for lateral in node.args.get("laterals") or ()}
        aliases = {name: other for name, other in aliases.items() if name not in hidden}
    for child in node.iter_expressions():
        _rename(child, aliases)


def _check_linked(part: exp.Select, outer: Collection[str], query: exp.Query) -> None:
    """Check that conditions connect a subquery's changed rows with outer ones, if only by rows between them."""
    conditions = [*conjuncts(part.args.get("where")), *(j.args["on"] for j in part.args["joins"] if j.args.get("on"))]
    reached, groups = {part.meta[_CHANGED]}, [tables_of(each) for each in conditions if not subqueries(each)]
    for _ in groups:
        for of in groups:
            if of & reached:
                reached |= of
    if reached & set(outer):
        return
    read = ", ".join(sorted(inputs_of(query)))
    raise NotIncrementalError(
        f"a subquery over {read} decides about every row",
        "join it by a column, or make its value a table of its own, with a column to join by",
    )


def _changed_rows(relation: Relation, sign: Part, changes: Changes, used: Collection[str]) -> list[exp.Expr]:
    """Return relations that together have all rows of a relation that went or came.

    Args:
        used: The columns that they have at least.
    """
    node = relation.node
    if isinstance(node, exp.Table):
        return [at_place(_table(changes.name(node.name, sign), relation.alias), place_of(node))]
    query = unwrapped(node)
    positions = frozenset(position for position, name in enumerate(named(query)) if name in used)
    return [_derived(rows, node, relation.alias) for rows in _changed_in(query, sign, changes, positions)]


def _changed_in(query: exp.Query, sign: Part, changes: Changes, used: frozenset[int]) -> list[exp.Query]:
    """Return queries for the rows that went or came, with all columns or those used alone."""
    if not changes.touch(query):
        return []
    check_unlimited(query)
    names = named(query)
    if isinstance(query, exp.Union) and not query.args.get("distinct") and has_equal_types(query):
        branches = (unwrapped(query.left), unwrapped(query.right))
        found = [each for branch in branches for each in _changed_in(branch, sign, changes, used)]
        some = [names[position] for position in sorted(used)]
        return [_called(each, names if len(each.selects) == len(names) else some) for each in found]
    if isinstance(query, exp.Select) and _only_joins(query, changes):
        return list(_by_one_sign(query, sign, changes))
    units = unit_columns(query)
    if used and used <= units:
        touched = _touched(query, sorted(used), changes)
        return [exp.select(*(exp.column(names[unit], "_mv_touched", quoted=True) for unit in used)).from_(touched)]
    compared = [unit for unit in sorted(units) if _is_comparable(query, unit)]
    if not compared:
        raise NotIncrementalError(
            "a derived table has no columns that divide its rows", "group or partition it by columns that it returns"
        )
    rows = exp.Subquery(this=_at(query, _SIDES[sign], changes), alias=_table_alias("_mv_rows"))
    touched = _touched(query, compared, changes)
    same = [
        exp.NullSafeEQ(
            this=exp.column(names[unit], "_mv_rows", quoted=True),
            expression=exp.column(names[unit], "_mv_touched", quoted=True),
        )
        for unit in compared
    ]
    is_touched = exp.Exists(this=exp.select("1").from_(touched).where(*same))
    return [exp.select(*(exp.column(n, "_mv_rows", quoted=True) for n in names)).from_(rows).where(is_touched)]


def _touched(query: exp.Query, units: Sequence[int], changes: Changes) -> exp.Subquery:
    """Return a relation of a derived table's units that may differ."""
    parts = _affected(query, units, changes)
    if not parts:
        raise NotIncrementalError("a subquery decides in which order rows are taken")
    found = exp.union(*parts, distinct=False, copy=False) if len(parts) > 1 else parts[0]
    return exp.Subquery(this=found, alias=_table_alias("_mv_touched"))


def _is_comparable(query: exp.Query, position: int) -> bool:
    """True if a column's type is not known to be one of which two values cannot be compared."""
    kind = query.selects[position].type
    return kind is None or not any(each.is_type(*_NOT_COMPARABLE) for each in kind.find_all(exp.DataType))


def _called(query: _QueryT, names: Sequence[str]) -> _QueryT:
    """Give a part of a UNION the names of the whole: those of its first part."""
    pairs = zip(query.selects, names, strict=True)
    query.set("expressions", [each.unalias().as_(name, quoted=True) for each, name in pairs])
    return query


def _only_joins(select: exp.Select, changes: Changes) -> bool:
    """True if each of a SELECT's rows is one joined tuple, and none can be missing that has changed."""
    may_be_missing = optional(select)
    is_plain = not (is_grouped(select) or windows(select) or select.args.get("distinct") or select.args.get("qualify"))
    return (
        is_plain
        and not any(
            changes.touch(each.node) and (each.alias in may_be_missing or each.is_looked_up)
            for each in relations(select)
        )
        and not any(changes.touch(query) for clause in clauses(select) for query in subqueries(clause))
    )


def _by_one_sign(select: exp.Select, sign: Part, changes: Changes) -> Iterable[exp.Select]:
    for position, each in enumerate(relations(select)):
        if changes.touch(each.node):
            others = [one for one in select.iter_expressions() if not isinstance(one, exp.From | exp.Join | exp.Where)]
            conditions = [one for one in conjuncts(select.args.get("where")) if not varies(one)]
            used = _columns(each.alias, [*others, *_joining(select), *conditions])
            for rows in _changed_rows(each, sign, changes, used.keys()):
                found = _at(select, _SIDES[sign], changes)
                assert isinstance(found, exp.Select)
                if (join := relations(found)[position].join) is None:
                    found.args["from_"].set("this", rows)
                else:
                    join.set("this", rows)
                yield _beginning_with(each.alias, found)


def _at(node: exp.Expr, side: Part, changes: Changes) -> exp.Expr:
    """Return a copy of a query or relation over the inputs as they were before, or are after, the change.

    Conditions that vary are left out.
    """
    found = node.copy()
    for each in found.find_all(exp.Join, exp.Where, exp.Having, exp.Qualify):
        name = "on" if isinstance(each, exp.Join) else "this"
        parts = conjuncts(each.args.get(name))
        if parts and all(map(varies, parts)) and not isinstance(each, exp.Join):
            each.pop()  # QUALIFY has to have a window function
        elif any(map(varies, parts)):
            each.set(name, _stable(each.args[name]))
    for table in list(found.find_all(exp.Table)):
        there = _table(changes.name(table.name, side), table.alias_or_name)
        if table is found:
            return there
        table.replace(there)
    return found


def _stable(condition: exp.Expr) -> exp.Expr:
    """Return a copy of a condition without the parts of it that vary."""
    found = [each for each in conjuncts(condition) if not varies(each)]
    return exp.and_(*found) if found else exp.true()


def _table(name: str, alias: str) -> exp.Table:
    return exp.Table(this=exp.to_identifier(name, quoted=True), alias=_table_alias(alias))


def _derived(query: exp.Query, like: exp.Expr, alias: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=_alias(like, alias))


def _alias(node: exp.Expr, name: str) -> exp.TableAlias:
    columns = node.args["alias"].columns if node.args.get("alias") else []
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True), columns=[each.copy() for each in columns])


def _table_alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))
