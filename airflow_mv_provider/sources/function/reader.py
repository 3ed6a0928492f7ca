"""A Python function as source: it returns a DataFrame, without a guarantee that two calls return the same rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core.frontier import NoFrontier
from airflow_mv_provider.core.strategy import Determinism
from airflow_mv_provider.exceptions import MvError, SourceFunctionError
from airflow_mv_provider.sources.function.model import Function
from airflow_mv_provider.sources.imported import imported, named
from airflow_mv_provider.sources.projection import projected
from airflow_mv_provider.sources.reader import SourceReader
from airflow_mv_provider.spark.errors import is_of_spark, understood
from airflow_mv_provider.spark.session import apply_required_confs


class FunctionReader(SourceReader[Function, NoFrontier]):
    """A reader that calls a function once, at the first read, with the refresh's own session."""

    def probe(self) -> NoFrontier:
        """Return the empty frontier; see `SourceReader`."""
        return NoFrontier()

    def read(self, _frontier: NoFrontier, extra: Sequence[str] = ()) -> DataFrame:
        """Return the function's rows, projected; see `SourceReader`.

        raises : SourceFunctionError
        """
        return projected(self._rows, self._source.select, extra)

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
                raise SourceFunctionError(where, f"the function raised {named(error)}.") from error
            finally:
                apply_required_confs(self._spark)
            if not isinstance(rows, DataFrame):
                raise SourceFunctionError(
                    where, f"the function returned {type(rows).__name__}, not a DataFrame of Spark."
                )
            if rows.isStreaming:  # over Spark Connect this is the first analysis of the plan
                raise SourceFunctionError(
                    where, "the function returned a stream; a table is refreshed from rows that end."
                )
        return rows

    def _imported(self) -> Callable[[SparkSession], object]:
        found = imported(self._where, self._source.callable)
        if not callable(found):
            name = self._source.callable.partition(":")[2]
            raise SourceFunctionError(self._where, f"{name!r} is {type(found).__name__}, not a function.")
        return found

    @property
    def _where(self) -> str:
        return f"function {self._source.callable}"
