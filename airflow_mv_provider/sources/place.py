"""Confine a source to its roots on the host that reads it: only there can links that lead outside be detected."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from airflow_mv_provider.core.location import is_inside, source_location
from airflow_mv_provider.exceptions import UnsafeLocationError


def confined(path: str, warehouse: str, roots: Sequence[str]) -> str:
    """Return the absolute location of a source's path.

    raises : UnsafeLocationError, if it or a link on its path leads out of the warehouse and `roots`
    """
    absolute = source_location(path, warehouse, roots)
    if "://" not in absolute:
        check_link(re.split(r"[*?\[{]", absolute, maxsplit=1)[0], warehouse, roots)
    return absolute


def literal_path(path: str) -> str:
    """Return a path with the characters escaped that have a meaning in a glob."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


def check_link(path: str, warehouse: str, roots: Sequence[str]) -> None:
    """Refuse a local path that resolves to a place outside the warehouse and `roots`.

    raises : UnsafeLocationError
    """
    real = os.path.realpath(path)
    if not any(is_inside(real, os.path.realpath(root)) for root in (warehouse, *roots) if "://" not in root):
        raise UnsafeLocationError("source", f"{path!r} is a link that leads out of the warehouse.")
