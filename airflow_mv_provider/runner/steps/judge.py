"""Judge a refresh before its first commit: its guards, and whether a person has to decide, or has decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_mv_provider.core import strategy
from airflow_mv_provider.core.approval.check import why_refused
from airflow_mv_provider.core.guard import Counts, Refusal, refusals
from airflow_mv_provider.core.progress.recorded import RecordedChunk, changed_partitions
from airflow_mv_provider.exceptions import CheckFailedError, GuardRefusedError
from airflow_mv_provider.runner.steps.approval import approved_guards
from airflow_mv_provider.runner.steps.comparison import Comparison
from airflow_mv_provider.runner.steps.fencing import FencedMain
from airflow_mv_provider.runner.steps.sampling import keep_sample
from airflow_mv_provider.runner.steps.work import Work


class Judge:
    """The judgement of one attempt's difference.

    compared    : returns the comparison of the seal with main at the base
    is_replaced : returns True if this round overwrites main
    """

    def __init__(
        self, work: Work, fenced: FencedMain, compared: Callable[[], Comparison], is_replaced: Callable[[], bool]
    ) -> None:
        self._work = work
        self._fenced = fenced
        self._compared = compared
        self._is_replaced = is_replaced

    def by_counts(self, counts: Counts, recorded: Sequence[RecordedChunk] = ()) -> bool:
        """Check the guards and, if the refresh needs a person's decision, that it was approved.

        recorded : the corrections, if they are listed row by row
        returns  : False if it needs a decision, and its rows have to be listed first
        raises   : CheckFailedError; GuardRefusedError; as `approved_guards` does
        """
        work = self._work
        self._check()
        parts = [part for chunk in recorded for part in chunk.partitions]
        refused = self._refusals(counts, changed_partitions(parts) if recorded else None)
        changes_columns = work.layout_now().changes_main
        # Of a table that is overwritten only main's lost and changed rows are counted one by one.
        has_changes = bool(counts.changes) or counts.desired != counts.main or changes_columns
        is_listed = not self._is_replaced() or self._fenced.is_empty or bool(work.layout_now().dropped)

        def sample() -> bool:
            return keep_sample(work, recorded)

        approved = approved_guards(
            *(work, refused),
            has_changes=has_changes,
            changes_columns=changes_columns,
            keep_sample=sample,
            is_listed=is_listed,
        )
        if approved is None:
            return False
        refusal = next((each for each in refused if each.guard not in approved), None)
        is_sampled = bool(recorded) and (refusal is not None or work.definition.samples == "always") and sample()
        if refusal:
            name, problem = work.table.name, f"{refusal.guard}: {refusal.problem}"
            look = f"`amv diff {name} --refresh {work.own.refresh_id[:8]}` shows some of the rows. "
            hint = (look if is_sampled else "") + GuardRefusedError.hint
            raise GuardRefusedError(name, problem, hint=hint, guard=refusal.guard)
        return True

    def by_keys(self, *, is_counted: bool = False) -> bool:
        """Check the guards before the first commit if not every chunk is compared, by keys and hashes of rows.

        is_counted : count exactly even if no guard can refuse
        returns    : as `by_counts`
        """
        self._check()
        compared = self._compared()
        if is_counted or self._refusals(compared.at_most()):
            needs_updates = strategy.count_obstacle(self._work.definition) is not None
            return self.by_counts(compared.counted(with_updates=is_counted or needs_updates))
        return True

    def _check(self) -> None:
        if why := why_refused(self._work.seal.checks):
            raise CheckFailedError(self._work.table.name, why)

    def _refusals(self, counts: Counts, num_partitions: int | None = None) -> tuple[Refusal, ...]:
        """Return the guards that refuse.

        num_partitions : those with a changed row; None to count those whose digests differ
        """
        work = self._work
        guards, is_whole = work.definition.guards, work.layout.is_whole
        if num_partitions is None:
            num_partitions = 0 if guards.max_changed_partitions is None else self._compared().num_partitions
        return refusals(
            *(guards, counts, work.refresh.overrides),
            is_everything=is_whole,
            num_partitions=num_partitions,
            usual=work.store.usual(work.table, guards, is_whole=is_whole),
            nulls=work.seal.nulls,
        )
