"""The remaining steps of a refresh, as values: planned from what is durable, then run one after the other.

After every step the runner reads what is durable now and plans again, so the first run, a retry and a takeover are the
same code. The protocol's model in `tests/model` runs the same list.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.chunk import Chunk


@dataclass(frozen=True, slots=True)
class Fence:
    """Create main if it is missing, then make older epochs fail; the first step of every owner."""


@dataclass(frozen=True, slots=True)
class Conclude:
    """End the refresh from main's log alone, because later refreshes have followed it."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Read the source once, validate it and seal."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Record one chunk's corrections; computed first, if another writer has changed main since the seal."""

    chunk: Chunk


@dataclass(frozen=True, slots=True)
class PublishPart:
    """Compare-and-append one chunk of a progressive refresh."""

    chunk: Chunk


@dataclass(frozen=True, slots=True)
class Publish:
    """Judge the whole difference and compare-and-append it to main; or verify that main contains every part."""


@dataclass(frozen=True, slots=True)
class Clean:
    """Remove the refresh's staging and return to NORMAL."""


Step = Fence | Conclude | Stage | Compare | PublishPart | Publish | Clean


def chunks_of(step: Step) -> frozenset[int] | None:
    """Return the numbers of the chunks whose record a step may add or change; None if it may change all of them.

    A `PublishPart` that discards all records, because another writer has changed main, discards also its own.
    """
    match step:
        case Compare(chunk) | PublishPart(chunk):
            return frozenset({chunk.number})
        case _:
            return None


def remaining(
    phase: Phase,
    *,
    is_fenced: bool,
    chunks: Sequence[Chunk],
    recorded: Collection[int],
    committed: Collection[int] = (),
    is_progressive: bool = False,
    is_overtaken: bool = False,
) -> tuple[Step, ...]:
    """Return the steps from `phase` to the end of the refresh.

    is_fenced : this epoch's fence is in main's log
    chunks    : as planned at the seal; empty before it
    recorded  : numbers of the chunks whose corrections are recorded against a base that is still valid
    committed : numbers of the recorded chunks that main contains, or that need no correction
    is_progressive : each chunk has a commit of its own
    is_overtaken   : main's log shows a refresh that began after this one
    """
    fence: tuple[Step, ...] = () if is_fenced else (Fence(),)
    if is_overtaken and phase in (Phase.REFRESHING, Phase.MERGING):
        return (*fence, Conclude())
    match phase:
        case Phase.NORMAL:
            return ()
        case Phase.REFRESHING:
            return (*fence, Stage())
        case Phase.MERGING:
            # All chunks before the first commit, which guards judge by the whole difference.
            compare = (Compare(chunk) for chunk in chunks if chunk.number not in recorded)
            parts = (PublishPart(chunk) for chunk in chunks if is_progressive and chunk.number not in committed)
            return (*fence, *compare, *parts, Publish())
        case Phase.CLEANUP:
            return (Clean(),)


def may_have_published(phase: Phase, *, chunks: Collection[int], recorded: Collection[int], merge_round: int) -> bool:
    """True if main may have a commit of a refresh, as far as the database alone shows.

    The first commit follows the record of the last chunk; a round after the first may follow a commit. Recording a
    chunk requires ownership, so that under a new epoch False stays False.

    chunks, recorded : numbers of those that were planned at the seal, and of those whose corrections are recorded
    """
    if phase is not Phase.MERGING:
        return phase is Phase.CLEANUP
    return merge_round > 0 or len(recorded) >= len(chunks)
