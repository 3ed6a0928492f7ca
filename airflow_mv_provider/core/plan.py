"""What is left to do, as values: planned from what is durable, then run one after the other.

After every stage the runner looks at what is durable now and plans again, so the first run, a retry and a takeover are
the same code. `amv status` and the tests read the same list.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress import Chunk, parts


@dataclass(frozen=True, slots=True)
class Fence:
    """Create main if it is missing, then make older epochs fail; before anything else an owner does."""


@dataclass(frozen=True, slots=True)
class Conclude:
    """End the refresh by what main's log shows of it, and nothing else: later ones have followed."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Read the source once, validate it and seal."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Work out one chunk's corrections, write them and record them."""

    chunk: Chunk


@dataclass(frozen=True, slots=True)
class PublishPart:
    """Compare-and-append chunks that hold whole partitions between them, of a progressive refresh."""

    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Judge the whole difference and compare-and-append it to main; or see that every part is there."""


@dataclass(frozen=True, slots=True)
class Clean:
    """Remove what this refresh staged and go back to NORMAL."""


Step = Fence | Conclude | Stage | Compare | PublishPart | Publish | Clean


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
    recorded  : numbers of the chunks whose corrections are recorded against a base that still holds
    committed : numbers of the recorded chunks that main has, or that need no correction
    is_progressive : chunks are committed as they are ready, and not all at the end
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
            steps: list[Step] = []
            for part in parts(chunks) if is_progressive else (tuple(chunks),):
                steps += [Compare(chunk) for chunk in part if chunk.number not in recorded]
                if is_progressive and not all(chunk.number in committed for chunk in part):
                    steps.append(PublishPart(part))
            return (*fence, *steps, Publish())
        case Phase.CLEANUP:
            return (Clean(),)
