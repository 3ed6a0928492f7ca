"""Which versions of Spark this package works with, and which of its Python packages fit each other."""

from __future__ import annotations

import re

REQUIRED = "pyspark[connect]>=4.0.1,<4.3"  # as in pyproject.toml
_FROM, _BELOW = (4, 0), (4, 3)
_NEEDED = f"{_FROM[0]}.{_FROM[1]} to {_BELOW[0]}.{_BELOW[1] - 1}"


def spark_problem(version: str) -> str | None:
    """Return why a version of Spark cannot be used; None if it can, or if it is not written as versions are."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or _FROM <= (int(found[1]), int(found[2])) < _BELOW:
        return None
    return f"version {version}, and this package needs {_NEEDED}"


def packages_problem(pyspark: str, client: str | None) -> str | None:
    """Return why the installed Python packages of Spark do not fit each other; None if they do.

    pyspark, client : the versions of pyspark and pyspark-client; None if that is not installed
    """
    if client is None or client == pyspark:
        return None
    return f"pyspark {pyspark} and pyspark-client {client} are installed, and each has overwritten files of the other"
