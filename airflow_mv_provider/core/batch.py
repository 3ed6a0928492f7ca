"""Mint the next batch: the half-open range of source versions that one refresh brings into main.

This package's version of a source is a counter. `core.frontier` binds each value of it to the source's own state (a
Delta version, a listing of files). Bounds are [lower, upper): main is at `lower`, and will be at `upper`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchDescription:
    """Source versions [lower, upper) that a refresh publishes; never empty."""

    lower: int
    upper: int

    def __post_init__(self) -> None:
        if not 0 <= self.lower < self.upper:
            raise ValueError(f"a batch needs 0 <= lower < upper, got [{self.lower}, {self.upper})")


def mint(desired: int, persisted: int, last_lower: int | None, *, read_only: bool = False) -> BatchDescription | None:
    """Describe the next append, or None while there is nothing to append.

    desired, persisted : exclusive upper bounds, in source versions
    last_lower         : lower of the batch in flight; None when none is
    source             : "mint", Materialize `src/compute/src/sink/materialized_view.rs`
    """
    if read_only or desired <= persisted:
        return None
    if last_lower is not None and persisted <= last_lower:
        return None  # that batch is still in flight
    return BatchDescription(lower=persisted, upper=desired)
