"""Import what a definition names as `module:name`; errors name where its code failed, and never quote it."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path

from airflow_mv_provider.exceptions import SourceFunctionError


def imported(where: str, address: str) -> object:
    """Return the object at `module:name`.

    raises : SourceFunctionError
    """
    module_name, _, name = address.partition(":")
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:
        raise SourceFunctionError(
            where,
            f"importing {module_name!r} raised {named(error)}.",
            hint="Put the module where Python can import it: on PYTHONPATH, or in the DAG folder.",
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise SourceFunctionError(where, f"{module_name!r} has no {name!r}.")
        found = getattr(found, part)
    return found


def named(error: Exception) -> str:
    """Return an error's type and place in the code, but not its message, which may contain anything."""
    kind = type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        return f"{kind} ({error.name})"
    if isinstance(error, SyntaxError):
        return f"{kind} ({Path(error.filename or '?').name}, line {error.lineno})"
    frames = [(Path(f.filename), f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    theirs = [(path.name, line) for path, line in frames if not _is_ours(path)]
    return f"{kind} ({theirs[-1][0]}, line {theirs[-1][1]})" if theirs else kind


def _is_ours(path: Path) -> bool:
    return Path(__file__).parent in path.parents or path.parent.name == "importlib"
