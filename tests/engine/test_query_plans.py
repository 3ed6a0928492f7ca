"""The recorded plans that decisions are tested with are those of this version of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources.plans import asked, recorded

pytestmark = pytest.mark.slow
WHOLE = "spark.sql.debug.maxToStringFields"


@pytest.fixture
def whole_plans(spark: Any) -> Iterator[Any]:
    before = spark.conf.get(WHOLE)
    spark.conf.set(WHOLE, "1000000")
    yield spark
    spark.conf.set(WHOLE, before)


@pytest.mark.in_test_all
def test_recorded_plans_are_those_of_spark(whole_plans: Any, tmp_path: Path) -> None:
    found = {plan.name: plan for plan in asked(whole_plans, tmp_path)}

    assert found == recorded()
