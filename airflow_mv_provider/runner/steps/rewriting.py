"""Decide how one refresh's corrections are published: by a MERGE, or by an overwrite of a small main."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from airflow_mv_provider.core import cost
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.progress.publishing import RewriteFacts, rewrite_obstacle
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.spark.layout import Layout

log = logging.getLogger(__name__)


def is_rewritten(work: Work, layout: Layout, properties: Mapping[str, str], counts: Counts) -> bool:
    """True if main is overwritten with the sealed rows; False if the recorded corrections are merged into it.

    properties : main's, at the fence
    counts     : of all recorded corrections
    """
    facts = RewriteFacts(
        counts=counts,
        properties=properties,
        is_small=work.is_small or (work.seal.rows is not None and cost.is_small(0, work.seal.num_bytes)),
        is_readable=work.seal.rows is not None or not work.is_copied,
        is_undisturbed=_is_undisturbed(work),
        changes_columns=layout.changes_main,
        has_own_columns=bool(layout.left_alone),
    )
    obstacle = rewrite_obstacle(work.definition, work.refresh.scope, facts)
    how = "the table is small: overwritten" if obstacle is None else f"merged: {obstacle}"
    log.debug("%s refresh %s: %s", work.table.name, work.own.refresh_id, how)
    return obstacle is None


def _is_undisturbed(work: Work) -> bool:
    if work.refresh.seal is not None or work.store.state(work.table.id).published_version is None:
        return False  # sealed before this attempt; or a table that was adopted as it is
    return not work.current().merge_round and work.store.last_hold(work.own.refresh_id) is None
