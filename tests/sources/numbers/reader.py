"""Numbers as source, which Spark counts."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from airflow_mv_provider.core.strategy import Determinism
from airflow_mv_provider.sources.numbers.frontier import NumbersFrontier
from airflow_mv_provider.sources.numbers.model import Numbers
from airflow_mv_provider.sources.projection import projected, projected_determinism
from airflow_mv_provider.sources.reader import SourceReader


class NumbersReader(SourceReader[Numbers, NumbersFrontier]):
    """A reader of the numbers below a bound."""

    def probe(self) -> NumbersFrontier:
        """Return the definition's bound; see `SourceReader`."""
        return NumbersFrontier(self._source.below)

    def read(self, frontier: NumbersFrontier, beside: Sequence[str] = ()) -> DataFrame:
        """Return the numbers, projected; see `SourceReader`."""
        return projected(self._spark.range(frontier.below), self._source.select, beside)

    def determinism(self, frontier: NumbersFrontier) -> Determinism:
        """Return whether Spark finds the projection deterministic; see `SourceReader`."""
        return projected_determinism(self._spark, self._source.select, f"range({frontier.below})")

    def verify(self, _frontier: NumbersFrontier) -> None:
        """Do nothing: numbers do not change; see `SourceReader`."""
