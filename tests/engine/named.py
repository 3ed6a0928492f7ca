"""A lake whose session has a Hive metastore, and what tests of names do there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_mv_provider.core.catalog.entry import Entry
from airflow_mv_provider.spark.catalog import names


@dataclass
class Catalog:
    """One schema of a metastore, and the lake beside it."""

    lake: Any
    schema: str

    @property
    def spark(self) -> Any:
        return self.lake.spark

    def name(self, table: str = "orders") -> str:
        return f"spark_catalog.{self.schema}.{table}"

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement; `shop` stands for the schema."""
        return [tuple(row) for row in self.spark.sql(text.replace("shop.", f"{self.schema}.")).collect()]

    def rows(self, table: str = "orders") -> list[tuple[Any, ...]]:
        """The rows that a reader of the name sees, whose session knows nothing of the one that wrote them."""
        rows = self.spark.newSession().sql(f"SELECT * FROM {self.name(table)}").collect()
        return sorted((tuple(row) for row in rows), key=repr)

    def entry(self, table: str = "orders") -> Entry | None:
        return names.entry(self.spark, self.name(table))

    def path(self, place: str = "orders") -> Path:
        path: Path = self.lake.root / place
        return path
