"""Judge a refresh before its first commit: its guards, and whether a person has to decide, or has decided."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_mv_provider.core.approval.check import why_refused
from airflow_mv_provider.core.guard import Counts, Refusal, refusals
from airflow_mv_provider.core.progress.recorded import RecordedChunk, changed_partitions
from airflow_mv_provider.exceptions import CheckFailedError, GuardRefusedError
from airflow_mv_provider.runner.steps.approval import approved_guards
from airflow_mv_provider.runner.steps.sampling import keep_sample
from airflow_mv_provider.runner.steps.work import Work


def judge(work: Work, counts: Counts, recorded: Sequence[RecordedChunk]) -> None:
    """Check the guards and, if the refresh needs a person's decision, that it was approved.

    recorded : all chunks
    raises   : CheckFailedError; GuardRefusedError; as `approved_guards` does
    """
    if why := why_refused(work.seal.checks):
        raise CheckFailedError(work.table.name, why)
    refused = _refusals(work, counts, recorded)
    changes_columns = work.layout_now().changes_main

    def sample() -> bool:
        return keep_sample(work, recorded)

    approved = approved_guards(
        *(work, refused),
        has_changes=bool(counts.changes) or changes_columns,
        changes_columns=changes_columns,
        keep_sample=sample,
    )
    refusal = next((each for each in refused if each.guard not in approved), None)
    is_sampled = (refusal is not None or work.definition.samples == "always") and sample()
    if refusal:
        name, problem = work.table.name, f"{refusal.guard}: {refusal.problem}"
        look = f"`amv diff {name} --refresh {work.own.refresh_id[:8]}` shows some of the rows. "
        hint = (look if is_sampled else "") + GuardRefusedError.hint
        raise GuardRefusedError(name, problem, hint=hint, guard=refusal.guard)


def _refusals(work: Work, counts: Counts, recorded: Sequence[RecordedChunk]) -> tuple[Refusal, ...]:
    """Return the guards that refuse."""
    guards, is_whole = work.definition.guards, work.layout.is_whole
    return refusals(
        *(guards, counts, work.refresh.overrides),
        is_everything=is_whole,
        num_partitions=changed_partitions(part for chunk in recorded for part in chunk.partitions),
        usual=work.store.usual(work.table, guards, is_whole=is_whole),
        nulls=work.seal.nulls,
    )
