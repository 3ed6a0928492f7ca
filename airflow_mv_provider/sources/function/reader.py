"""A Python function as source: it returns a DataFrame, without a guarantee that two calls return the same rows."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core.frontier import NoFrontier
from airflow_mv_provider.core.strategy import Determinism
from airflow_mv_provider.exceptions import MvError, SourceFunctionError
from airflow_mv_provider.sources.function.model import Function
from airflow_mv_provider.sources.projection import projected
from airflow_mv_provider.sources.reader import SourceReader
from airflow_mv_provider.spark.errors import is_of_spark, understood
from airflow_mv_provider.spark.session import apply_required_confs


class FunctionReader(SourceReader[Function, NoFrontier]):
    """A reader that calls a function once, at the first read, with the refresh's own session."""

    def probe(self) -> NoFrontier:
        """Return the empty frontier; see `SourceReader`."""
        return NoFrontier()

    def read(self, _frontier: NoFrontier, beside: Sequence[str] = ()) -> DataFrame:
        """Return the function's rows, projected; see `SourceReader`.

        raises : SourceFunctionError
        """
        return projected(self._rows, self._source.select, beside)

    def determinism(self, _frontier: NoFrontier) -> Determinism:
        """Return that the rows may differ between reads; see `SourceReader`."""
        return Determinism("a function may return other rows at each call")

    def verify(self, _frontier: NoFrontier) -> None:
        """Do nothing: an empty frontier cannot be checked; see `SourceReader`."""

    @cached_property
    def _rows(self) -> DataFrame:
        """The result of this attempt's only call: its columns and then its rows must come from the same call."""
        where, function = self._where, self._imported()
        with understood(where):
            try:
                rows = function(self._spark)
            except Exception as error:
                if isinstance(error, MvError) or is_of_spark(error):
                    raise
                raise SourceFunctionError(where, f"it raised {_named(error)}.") from error
            finally:
                apply_required_confs(self._spark)
            if not isinstance(rows, DataFrame):
                raise SourceFunctionError(where, f"it returned {type(rows).__name__}, not a DataFrame of Spark.")
            if rows.isStreaming:  # over Spark Connect this is the first analysis of the plan
                raise SourceFunctionError(where, "it returned a stream; a table is refreshed from rows that end.")
        return rows

    def _imported(self) -> Callable[[SparkSession], object]:
        module_name, _, name = self._source.callable.partition(":")
        try:
            found: object = importlib.import_module(module_name)
        except Exception as error:
            raise SourceFunctionError(
                self._where,
                f"importing {module_name!r} raised {_named(error)}.",
                hint="Put the module where Python can import it: on PYTHONPATH, or in the DAG folder.",
            ) from error
        for part in name.split("."):
            if not hasattr(found, part):
                raise SourceFunctionError(self._where, f"{module_name!r} has no {name!r}.")
            found = getattr(found, part)
        if not callable(found):
            raise SourceFunctionError(self._where, f"{name!r} is {type(found).__name__}, not a function.")
        return found

    @property
    def _where(self) -> str:
        return f"function {self._source.callable}"


def _named(error: Exception) -> str:
    """Return an error's type and place in the code, but not its message, which may contain anything."""
    kind = type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        return f"{kind} ({error.name})"
    if isinstance(error, SyntaxError):
        return f"{kind} ({Path(error.filename or '?').name}, line {error.lineno})"
    frames = [(Path(f.filename), f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    theirs = [(path.name, line) for path, line in frames if path != Path(__file__) and path.parent.name != "importlib"]
    return f"{kind} ({theirs[-1][0]}, line {theirs[-1][1]})" if theirs else kind
