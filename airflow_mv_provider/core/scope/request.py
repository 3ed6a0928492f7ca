"""The options of one refresh as its caller requests them: checked here, once, for every interface.

Values from a trigger form or the REST API are literal text from any user who may trigger a DAG: they are never rendered
as templates, and every value is checked even if a form has checked it before.
"""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.guard import NAMES as GUARD_NAMES
from airflow_mv_provider.core.progress.partition import partition_values
from airflow_mv_provider.core.scope.scope import EVERYTHING, Scope, asked_scope, check_scope
from airflow_mv_provider.core.state import RefreshRecord
from airflow_mv_provider.core.strategy_names import REQUESTED, RequestedStrategy
from airflow_mv_provider.exceptions import ArgumentError

PARAMS = (
    "read_only",
    "overrides",
    "force",
    "reload",
    "scope",
    "partitions",
    "from",
    "until",
    "stale",
    "strategy",
    "hold",
    "note",
)
SCOPES = ("as usual", "everything", "range", "partitions", "stale")
"""The values of a form's `scope`; the params that belong to it complete it."""

_MAX_NOTE = 1000


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a refresh.

    read_only     : compute and report the differences per partition; main is not written, no other caller has to wait
    overrides     : names of guards set aside for this refresh
    reload        : read a log from its start, and compare main with all of it
    force         : compare even if the source's frontier is unchanged
    scope         : the partitions to refresh; nothing outside is changed
    strategy      : how main is brought up to date this time; None uses the definition's strategy
    hold          : wait for a person's decision before main is changed, whatever the definition has
    is_stale_only : leave out what refreshes of some partitions have already brought to the source's present state
    note          : the reason in the requester's words; kept in the history

    raises : ArgumentError, for an invalid value
    """

    read_only: bool = False
    overrides: tuple[str, ...] = ()
    force: bool = False
    scope: Scope = EVERYTHING
    is_stale_only: bool = False
    strategy: RequestedStrategy | None = None
    note: str | None = None
    hold: bool = False
    reload: bool = False

    def __post_init__(self) -> None:
        note: object = self.note
        if note is not None and not (isinstance(note, str) and len(note) <= _MAX_NOTE):
            raise refused("note", self.note, f"Use a string of at most {_MAX_NOTE} characters.")
        for name in ("read_only", "force", "is_stale_only", "hold", "reload"):
            if not isinstance(getattr(self, name), bool):
                raise refused(name, getattr(self, name), "Use true or false.")
        if self.strategy is not None and self.strategy not in REQUESTED:
            raise refused("strategy", self.strategy, f"Strategies: {', '.join(REQUESTED)}.")
        for guard in self.overrides:
            if guard not in GUARD_NAMES:
                raise refused("overrides", guard, f"Guards: {', '.join(GUARD_NAMES)}.")
        if self.hold and self.read_only:
            raise ArgumentError(
                "request",
                "`hold` and `read_only` exclude each other: a read-only refresh publishes nothing.",
                hint="Leave one out.",
            )
        if self.reload and not (self.scope.is_everything and not self.is_stale_only):
            raise ArgumentError(
                "request",
                "`reload` and partitions exclude each other: a reload reads everything.",
                hint="Leave one out.",
            )
        if self.is_stale_only and (self.force or not self.scope.is_everything):
            raise ArgumentError(
                "request", "`stale` excludes partitions and `force`: it chooses by itself.", hint="Leave one out."
            )


AS_USUAL = Request()


def parse_request(params: Mapping[str, Any], others: Collection[str] = ()) -> Request:
    """Return the request that a run's params contain.

    params : those that PARAMS names; each may be missing or None, and if `scope` is given, only the partition params
             that belong to it may be given
    others : names of params that belong to other code, and are ignored
    raises : ArgumentError, also for a name that is neither: a run cannot set a connection's address, Spark's confs or
             a part of a definition, and a misspelt guard must not look as if it were set aside
    """
    if unknown := sorted(name for name in params if name not in PARAMS and name not in others):
        hint = f"A refresh accepts {', '.join(PARAMS)}. A DAG's author declares further params in the DAG's `params`."
        problem = f"unknown: {', '.join(repr(name[:60]) for name in unknown[:10])}."
        raise ArgumentError("params", problem, hint=hint)
    _check_scope_named(params)
    overrides = params.get("overrides") or ()
    partitions = params.get("partitions") or ()
    for name, value in (("overrides", overrides), ("partitions", partitions)):
        if not isinstance(value, list | tuple):
            raise refused(name, value, "Give a list.")
    return Request(
        read_only=_flag(params, "read_only"),
        overrides=_each_once(overrides),
        force=_flag(params, "force"),
        scope=asked_scope(partitions, params.get("from"), params.get("until")),
        is_stale_only=_flag(params, "stale") or params.get("scope") == "stale",
        strategy=params.get("strategy"),
        note=params.get("note") or None,
        hold=_flag(params, "hold"),
        reload=_flag(params, "reload"),
    )


def of_refresh(refresh: RefreshRecord) -> Request:
    """Return the request that asks for a refresh once more."""
    wanted = refresh.choice.wanted
    return Request(
        overrides=refresh.overrides,
        force=refresh.is_forced,
        scope=refresh.scope,
        strategy=None if wanted == refresh.definition.strategy else wanted,
        note=refresh.note,
        hold=refresh.is_hold_requested,
        reload=refresh.is_reload,
    )


def to_params(request: Request) -> dict[str, Any]:
    """Return the params that `parse_request` turns into this request again; JSON-able."""
    scope = request.scope
    if scope.without:
        raise ValueError("a scope that excludes others is computed by `stale`, it cannot be requested")
    return {
        "read_only": request.read_only,
        "overrides": list(request.overrides),
        "force": request.force,
        "partitions": [list(partition_values(name)) for name in scope.partitions],
        "from": scope.start,
        "until": scope.end,
        "stale": request.is_stale_only,
        "strategy": request.strategy,
        "note": request.note,
        "hold": request.hold,
        "reload": request.reload,
    }


def names_scope(params: Mapping[str, Any]) -> bool:
    """True if a run's params choose its partitions, `everything` included."""
    is_given = any(params.get(name) for name in ("partitions", "from", "until", "stale"))
    return is_given or params.get("scope") not in (None, "", "as usual")


def check_note(run: Request) -> None:
    """Require a reason from a person who sets guards aside.

    raises : ArgumentError
    """
    if run.overrides and not (run.note or "").strip():
        problem = f"overriding {', '.join(run.overrides)} needs a reason."
        raise ArgumentError("param note", problem, hint="Give the reason in `note`; `--note` on the command line.")


def check_fits(request: Request, table: RefreshableTable, kind: str | None) -> None:
    """Refuse a request that is invalid for the table, as far as its definition shows that.

    kind   : see `check_scope`
    raises : ArgumentError, FrozenPartitionError
    """
    if request.hold and table.publish == "progressive":
        hint = "Refresh with --read-only first, or set publish: atomic."
        raise ArgumentError(
            table.name,
            "a refresh of `publish: progressive` changes the table before all is compared, so none awaits approval.",
            hint=hint,
        )
    check_scope(request.scope, table, kind)
    check_read_from(request, table)


def check_read_from(request: Request, table: RefreshableTable) -> None:
    """Refuse to read a log for some partitions, and anything else from its start; raises ArgumentError."""
    if not table.source_kind.is_log:
        if request.reload:
            hint = "Use `--force`, which compares everything."
            raise ArgumentError(table.name, "only a log, such as a topic, can be read from its start.", hint=hint)
    elif not request.scope.is_everything or request.is_stale_only:
        hint = "Refresh all of the table."
        raise ArgumentError(table.name, "changes of a log are read once, for all partitions.", hint=hint)


def combined(written: Request, run: Request) -> Request:
    """Return the combination of the author's request in the DAG and the request of a run.

    A run may add to the author's request but cannot take anything back: read-only stays read-only. It may narrow a
    refresh of everything to some partitions, but cannot widen or change a scope that the author set.

    raises : ArgumentError
    """
    if EVERYTHING not in (written.scope, run.scope) and written.scope != run.scope:
        raise ArgumentError(
            "scope", f"the task covers {written.scope.describe()}; the run requests {run.scope.describe()}."
        )
    return Request(
        read_only=written.read_only or run.read_only,
        overrides=tuple(dict.fromkeys((*written.overrides, *run.overrides))),
        force=written.force or run.force,
        scope=run.scope if written.scope.is_everything else written.scope,
        is_stale_only=written.is_stale_only or run.is_stale_only,
        strategy=run.strategy or written.strategy,
        note=run.note or written.note,
        hold=(written.hold or run.hold) and not (written.read_only or run.read_only),
        reload=written.reload or run.reload,
    )


def refused(name: str, value: object, hint: str) -> ArgumentError:
    """Return the error for a param with an invalid value."""
    return ArgumentError(f"param {name}", f"{reprlib.repr(value)} is not allowed.", hint=hint)


def _each_once(overrides: Collection[Any]) -> tuple[str, ...]:
    for guard in overrides:
        if guard not in GUARD_NAMES:  # checked before it is hashed: it may be any JSON value
            raise refused("overrides", guard, f"Guards: {', '.join(GUARD_NAMES)}.")
    return tuple(dict.fromkeys(overrides))


def _check_scope_named(params: Mapping[str, Any]) -> None:
    """Require that `scope` and the params that belong to it agree: a mistake must not widen a refresh."""
    named = params.get("scope")
    if named in (None, ""):
        return
    if named not in SCOPES:
        raise refused("scope", named, f"Scopes: {', '.join(SCOPES)}.")
    needs = {"range": ("from", "until"), "partitions": ("partitions",)}
    mine = needs.get(named, ())
    if mine and not any(params.get(name) for name in mine):
        raise refused("scope", named, f"Give {' or '.join(mine)}.")
    for name in ("partitions", "from", "until", "stale"):
        if params.get(name) and name not in mine and name != named:
            raise refused("scope", named, f"Leave {name} empty, or choose another scope.")


def _flag(params: Mapping[str, Any], name: str) -> Any:
    value = params.get(name)
    return False if value is None else value
