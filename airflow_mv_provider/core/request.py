"""How one refresh is to be done, as whoever starts it asks: checked here, once, for every surface.

What comes from a trigger form or the REST API is literal text from whoever may trigger a DAG: nothing of it is ever
rendered as a template, and every value is checked although a form has checked it before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from airflow_mv_provider.core.guard import NAMES as GUARD_NAMES
from airflow_mv_provider.core.scope import EVERYTHING, Scope, asked_scope
from airflow_mv_provider.core.table import Wanted
from airflow_mv_provider.exceptions import DefinitionError

STRATEGIES: tuple[Wanted, ...] = get_args(Wanted)


@dataclass(frozen=True, slots=True)
class Request:
    """How a refresh is to be done.

    read_only     : compute and report the differences per partition; main is not written, nobody is kept waiting
    overrides     : names of guards set aside for this refresh
    force         : compare even if the source says that nothing is new
    scope         : the partitions to look at; nothing outside is changed
    strategy      : how main is brought up to date this time; None as the definition says
    is_stale_only : leave out what refreshes of some partitions have brought to the source's present state already

    raises : DefinitionError, for a value that is not what it has to be
    """

    read_only: bool = False
    overrides: tuple[str, ...] = ()
    force: bool = False
    scope: Scope = EVERYTHING
    is_stale_only: bool = False
    strategy: Wanted | None = None

    def __post_init__(self) -> None:
        for name in ("read_only", "force", "is_stale_only"):
            if not isinstance(getattr(self, name), bool):
                raise refused(name, getattr(self, name), "Use true or false.")
        if self.strategy is not None and self.strategy not in STRATEGIES:
            raise refused("strategy", self.strategy, f"Strategies: {', '.join(STRATEGIES)}.")
        for guard in self.overrides:
            if guard not in GUARD_NAMES:
                raise refused("overrides", guard, f"Guards: {', '.join(GUARD_NAMES)}.")
        if self.is_stale_only and (self.force or not self.scope.is_everything):
            raise DefinitionError("request", "`stale` takes no partitions and no `force`.", hint="Give one of them.")


AS_USUAL = Request()


def parse_request(params: Mapping[str, Any]) -> Request:
    """Return what a run's params ask for; unknown ones are somebody else's.

    params : read_only, overrides, force, partitions, from, until, stale, strategy; each may be missing or None
    raises : DefinitionError
    """
    overrides = params.get("overrides") or ()
    partitions = params.get("partitions") or ()
    for name, value in (("overrides", overrides), ("partitions", partitions)):
        if not isinstance(value, list | tuple):
            raise refused(name, value, "Give a list.")
    return Request(
        read_only=_flag(params, "read_only"),
        overrides=tuple(overrides),
        force=_flag(params, "force"),
        scope=asked_scope(partitions, params.get("from"), params.get("until")),
        is_stale_only=_flag(params, "stale"),
        strategy=params.get("strategy"),
    )


def combined(written: Request, run: Request) -> Request:
    """Return what a DAG's author wrote and a run asks for together.

    A run may ask for more than was written, never for less: read-only stays read-only. It may narrow a refresh of
    everything to some partitions, and not widen or change a scope that was written.

    raises : DefinitionError
    """
    if EVERYTHING not in (written.scope, run.scope) and written.scope != run.scope:
        raise DefinitionError(
            "scope", f"the task covers {written.scope.describe()}; the run asks for {run.scope.describe()}."
        )
    return Request(
        read_only=written.read_only or run.read_only,
        overrides=tuple(dict.fromkeys((*written.overrides, *run.overrides))),
        force=written.force or run.force,
        scope=run.scope if written.scope.is_everything else written.scope,
        is_stale_only=written.is_stale_only or run.is_stale_only,
        strategy=run.strategy or written.strategy,
    )


def refused(name: str, value: object, hint: str) -> DefinitionError:
    """Return the error for a param that is not what it has to be."""
    return DefinitionError(f"param {name}", f"{repr(value)[:80]} is not allowed.", hint=hint)


def _flag(params: Mapping[str, Any], name: str) -> Any:
    value = params.get(name)
    return False if value is None else value
