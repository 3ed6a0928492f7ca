"""Layers of digests: the digests of main are those at one path, and above them the sums that later changes have added.

A refresh of a few changed rows writes what these add to the digests, not the digests of all rows: every aggregate in
them is additive. Whoever reads the digests reads all layers and sums them up by bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_mv_provider.core.location import moved_path

_MAX_LAYERS = 6  # each is a few more small files to read
_MIN_ROWS = 20_000  # the digests of fewer are written anew as fast
_ROWS_PER_CHANGE = 16  # four to eight rows share a digest, so a layer has at most about a third of all digests


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of digests: where it lies, and the refresh that wrote it."""

    refresh_id: str
    path: str

    def moved(self, old: str, new: str) -> Layer:
        """Return the layer after its warehouse was moved."""
        return replace(self, path=moved_path(self.path, old, new))


def all_paths(below: Iterable[Layer], highest: str | None) -> tuple[str, ...]:
    """Return where all layers of digests lie, the lowest first; nothing if none are written."""
    return () if highest is None else (*(layer.path for layer in below), highest)


def layers_below(published: Sequence[Layer], num_rows: int, num_changes: int) -> tuple[Layer, ...]:
    """Return the layers on which a refresh places the sums of its changes; none if it writes all digests anew.

    published   : the layers of main's digests, the lowest first
    num_rows    : of main
    num_changes : rows of main that are inserted, updated or deleted
    """
    is_worth = num_rows >= _MIN_ROWS and num_changes * _ROWS_PER_CHANGE <= num_rows
    return tuple(published) if is_worth and len(published) < _MAX_LAYERS else ()


def outdated_layers(before: Iterable[Layer], after: Iterable[Layer]) -> tuple[str, ...]:
    """Return the refreshes whose digests are needed no longer once main has the digests `after` instead of `before`."""
    needed = {layer.refresh_id for layer in after}
    return tuple(dict.fromkeys(layer.refresh_id for layer in before if layer.refresh_id not in needed))


def layers_from_json(stored: Iterable[dict[str, str]] | None) -> tuple[Layer, ...]:
    """Return layers from what the database has of them; None is what an older version wrote."""
    return tuple(Layer(**each) for each in stored or ())
