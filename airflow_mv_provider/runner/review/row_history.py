"""Follow one row of main through its log: what each commit did to it, and which refresh made that commit.

    now ◀── version 12 ◀── version 9 ◀── ...   the row at the version before each commit that may have changed rows
            └── or, as far as main keeps one, its change feed: all these commits in one job

Nothing is acquired or written. The versions are those that main had when its log was read, so refreshes may go on. The
first version that cannot be read any more is where the history begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_mv_provider.core.approval import row_history as core
from airflow_mv_provider.core.approval.row_history import (
    Beginning,
    Row,
    RowHistory,
    RowVersion,
    RowVersions,
    SearchedCommits,
)
from airflow_mv_provider.core.approval.target import parse_since
from airflow_mv_provider.core.commits import FEED_PROPERTY
from airflow_mv_provider.core.fence import Commit
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError, NotPublishedError, VersionGoneError
from airflow_mv_provider.metadata.rows import maybe_iso
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.review.row_file import places_of
from airflow_mv_provider.runner.watching import Progress
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.errors import is_gone
from airflow_mv_provider.spark.review import one_row
from airflow_mv_provider.spark.review.one_row import OneRow

LAST = 20
Changes = tuple[tuple[Row | None, Row | None], ...]


@dataclass
class _Walk:
    """One row on its way back through main's commits.

    rows    : as they are before the last commit that was looked at
    changes : what each commit did, by its version
    begins  : where the way ends before all commits were looked at; None as long as it has not
    """

    context: Context
    table: TableRecord
    main: Main
    one: OneRow
    searched: SearchedCommits
    rows: tuple[Row, ...]
    changes: dict[int, Changes] = field(default_factory=dict)
    begins: Beginning | None = None
    is_from_feed: bool = False


def row_history(
    context: Context,
    name: str,
    key: Sequence[str],
    column: str | None = None,
    *,
    last: int = LAST,
    since: str | None = None,
) -> RowHistory:
    """Return what has happened to the row with a key, and who did it.

    key    : COLUMN=VALUE for each column of the definition's key
    column : only this one, beside the key
    last   : at most so many of main's newest commits that may have changed rows
    since  : a time, ISO 8601; only commits from then on
    cost   : one job for each commit, which scans the files whose statistics may have the key; one job for all commits
             that main's change feed has. Shown as progress
    raises : ArgumentError, for a key, column or time that is none; NotPublishedError, if main is not there;
             VersionGoneError, if not even main's newest version can be read
    """
    table = context.store.table(name)
    texts = core.parse_key(name, key, table.definition.key)
    since_ms = parse_since(name, since)
    main = Main(context.spark, table.main, table.uuid)
    if main.properties() is None:
        raise NotPublishedError(name, f"there is no table at {table.main}.")
    one = one_row.asked(main.spark, main.ref, name, texts, column)
    commits = main.log_until(lambda found: core.is_far_enough(found, last, since_ms))
    searched = core.commits_to_search(commits, last, since_ms)
    walk = _Walk(context, table, main, one, searched, _now(main, name, one, searched.newest))
    now = walk.rows
    left = _by_feed(walk, commits)
    _by_versions(walk, left)
    return _history(walk, now)


def row_versions(context: Context, name: str, key: Sequence[str]) -> RowVersions:
    """Return the versions of the row with a key, as the table's history has them, the newest thousand.

    key    : COLUMN=VALUE for each column of the definition's key
    cost   : one job, which scans the files of the history whose statistics may have the key
    raises : ArgumentError, for a key that is none; NotPublishedError, if the table keeps no history, or has none yet
    """
    table = context.store.table(name)
    texts, history = core.parse_key(name, key, table.definition.key, command="history-of"), table.definition.history
    found = Main(context.spark, table.main.history, table.uuid)
    if history is None or not found.is_ours:
        hint = "Set `history: true` in its definition, and refresh it." if history is None else "Refresh it."
        raise NotPublishedError(name, "the table has no history of its rows.", hint=hint)
    one = one_row.asked(found.spark, found.ref, name, texts, None)
    versions = one_row.versions_of(found.spark, name, found, history, one)
    sensitive, salt = table.definition.sensitive, table.uuid
    shown = core.hidden_key(one.key, sensitive, salt)
    return RowVersions(name, shown, core.hidden_versions(versions, sensitive, salt))


def _now(main: Main, name: str, one: OneRow, version: int) -> tuple[Row, ...]:
    try:
        return one_row.rows_at(main, name, one, version) or ()
    except MvError as error:
        if is_gone(error):
            problem = f"{main.ref} cannot be read at version {version}, its newest: {error.problem}"
            raise VersionGoneError(name, problem, hint="Restore the table's files from a backup.") from error
        raise


def _by_feed(walk: _Walk, commits: Sequence[Commit]) -> tuple[Commit, ...]:
    """Follow the row through the commits that main's change feed has; return those that are left.

    The feed begins with the commit that has set its property. If it cannot be read, its files may be gone, or main's
    columns may have changed: its versions are read instead.
    """
    changing, name = walk.searched.changing, walk.table.name
    if (walk.main.properties() or {}).get(FEED_PROPERTY, "").lower() != "true":
        return changing
    feed_start = next((c.version for c in commits if FEED_PROPERTY in str(c.parameters)), commits[-1].version - 1)
    in_feed = tuple(commit for commit in changing if commit.version > feed_start)
    if not in_feed:
        return changing
    _show(walk, f"reading the change feed from version {in_feed[-1].version} to {in_feed[0].version}")
    try:
        found = one_row.changes_in_feed(walk.main, name, walk.one, in_feed[-1].version, in_feed[0].version)
    except InterruptedRefreshError:
        raise
    except MvError:
        return changing
    walk.is_from_feed = True
    for commit in in_feed:
        walk.changes[commit.version] = found.get(commit.version, ())
        walk.rows = core.undone(walk.rows, walk.changes[commit.version])
    return changing[len(in_feed) :]


def _by_versions(walk: _Walk, commits: Sequence[Commit]) -> None:
    """Follow the row through these commits, newest first, by the version before each."""
    for number, commit in enumerate(commits, 1):
        before, version = walk.rows, commit.version - 1
        _show(walk, f"reading version {max(version, 0)}, of commit {number} of {len(commits)}")
        try:
            found = () if version < 0 else one_row.rows_at(walk.main, walk.table.name, walk.one, version)
        except MvError as error:
            if not is_gone(error):
                raise
            why = f"version {version} cannot be read any more: {error.problem}"
            walk.begins = Beginning(commit.version, why, before)
            return
        if found is None:
            walk.begins = Beginning(commit.version, f"version {version} does not have the key's columns", before)
            return
        walk.changes[commit.version] = core.changes_between(found, before)
        walk.rows = found


def _history(walk: _Walk, now: tuple[Row, ...]) -> RowHistory:
    store, table, searched = walk.context.store, walk.table, walk.searched
    changed = [commit for commit in reversed(searched.changing) if walk.changes.get(commit.version)]
    reports = store.reports_of(table.id, {commit.note.refresh_id for commit in changed if commit.note})
    events = tuple(
        core.event(commit, before, after, maybe_iso(commit.at_ms), core.cause_of(commit, reports))
        for commit in changed
        for before, after in walk.changes[commit.version]
    )
    published = store.state(table.id).published_version
    is_as_published = published is not None and all(each.version <= published for each in searched.changing[:1])
    found = RowHistory(
        table=table.name,
        key=dict(walk.one.key),
        column=walk.one.column,
        main_version=searched.newest,
        num_commits=len(walk.changes),
        is_from_feed=walk.is_from_feed,
        rows=now,
        events=events,
        begins=walk.begins or core.beginning(searched, walk.rows),
        came_from=places_of(walk.context, table, walk.one, now) if now and is_as_published else None,
        versions=_versions(walk),
    )
    return core.hidden(found, table.definition.sensitive, table.uuid)


def _versions(walk: _Walk) -> tuple[RowVersion, ...]:
    """Return the row's versions in the table's history; none if it has none, or it cannot be read."""
    table, spark = walk.table, walk.main.spark
    history, kept = table.definition.history, Main(spark, table.main.history, table.uuid)
    if history is None:
        return ()
    try:
        if not kept.is_ours:
            return ()
        return tuple(one_row.versions_of(spark, table.name, kept, history, walk.one))
    except InterruptedRefreshError:
        raise
    except MvError:
        return ()  # `amv history-of` says why


def _show(walk: _Walk, message: str) -> None:
    walk.context.watch(Progress(walk.table.name, "", Phase.NORMAL, message))
