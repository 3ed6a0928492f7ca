"""An operator that reports what has happened to one row of a table, and who did it; needs Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, Context

from airflow_mv_provider.asset import ROW_ANSWERS_URI
from airflow_mv_provider.core.approval.row_history import asked_text, key_texts
from airflow_mv_provider.exceptions import ArgumentError, MvError
from airflow_mv_provider.operators.task import RunnerTask
from airflow_mv_provider.report_text.row_history_text import row_history_text

if TYPE_CHECKING:
    from airflow_mv_provider.runner.refresh import Refresher


class WhyRowOperator(RunnerTask):
    """Report what each commit of the table did to one row, and which refresh, or who else, made it; as `amv why` does.

    Args:
        table: Name of a registered table; by default the run's param `table`.
        key: Value of each key column; by default the run's param `key`.
        column: Only what has changed this column; by default the run's param `column`, if there is one.
        last: How many of the table's newest commits that may have changed rows are looked at.
        since: Only commits from this time on, ISO 8601.

    The answer is in the task's log and pushed as a JSON object. The table's page shows it to users who may act on the
    table; its form starts a run of a DAG with this task, which it finds by the asset `mv://rows/answers` among the
    task's outlets. Nothing is acquired, and the table is not changed.
    """

    template_fields: Sequence[str] = ("table", "key", "column", "since")

    def __init__(
        self,
        *,
        table: str | None = None,
        key: Mapping[str, Any] | None = None,
        column: str | None = None,
        last: int = 20,
        since: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs["outlets"] = [*(kwargs.get("outlets") or ()), Asset(ROW_ANSWERS_URI)]
        super().__init__(**kwargs)
        self.table, self.key, self.column, self.last, self.since = table, key, column, last, since

    def work(self, refresher: Refresher, context: Context) -> Any:
        """Follow the row, and keep the answer for the page.

        Raises:
            DefinitionError
            TableNotFoundError
            VersionGoneError
        """
        self.outlets = [each for each in self.outlets or [] if each != Asset(ROW_ANSWERS_URI)]  # an answer is no event
        params = context["params"]
        name, key = self.table or params.get("table"), self.key if self.key is not None else params.get("key")
        column = self.column or params.get("column") or None
        if not isinstance(name, str) or not isinstance(key, Mapping):
            hint = 'Give `table` and `key`, or run it with {"table": "orders", "key": {"id": 5}}.'
            raise ArgumentError(self.task_id, "the task names no table and key.", hint=hint)
        texts, user = key_texts(key), self.caller(context).user
        table, answers = refresher.store.table(name), refresher.store.row_answers
        self.linked_table = name
        hidden = table.definition.sensitive
        asked = asked_text(key, column, hidden)
        try:
            found = refresher.row_history(name, texts, column, last=self.last, since=self.since)
        except MvError as error:
            is_sensitive = {each.lower() for each in key} & {each.lower() for each in hidden}
            shown = "see the task's log." if is_sensitive else f"{error.message} {error.advice}"
            answers.keep(table.id, user, asked, f"[{error.code}] {shown}", is_error=True)
            raise
        text = row_history_text(found)
        answers.keep(table.id, user, asked, text)
        self.log.info("%s", text)
        return json.loads(json.dumps(found.to_json()))  # plain lists: Airflow marks what was a tuple
