"""What main's own log proves: which refresh wrote, under which epoch, and whether other writers did.

Every commit of this package carries a transaction (app_id, version), which Delta refuses to repeat, and a note in its
userMetadata with its refresh, epoch and step. The fence is an empty commit at `fence_version(epoch)`: from then on
Delta drops or fails every further commit of an older epoch. Every other commit does the same, so a refresh that begins
right after the last publish needs no fence of its own (`core.state.is_fenced_by_last_publish`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Literal, get_args

from airflow_mv_provider.core.guard import Counts

_EPOCH_SHIFT = 20  # a million commits per epoch
_MAX_OPERATION = 60

# Operations that change no row. Every other operation counts as a change of data.
KEEPS_DATA = frozenset(
    {
        *("OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "CLUSTER BY", "COMPUTE STATS", "ANALYZE"),
        *(
            "SET TBLPROPERTIES",
            "UNSET TBLPROPERTIES",
            "UPGRADE PROTOCOL",
            "ADD CONSTRAINT",
            "DROP CONSTRAINT",
        ),
        *("CREATE TABLE", "ADD FEATURE"),
    }
)


def app_id(table_uuid: str) -> str:
    """Return the transaction application id of a table; it never changes."""
    return f"mv:{table_uuid}"


def fence_version(epoch: int) -> int:
    """Return the transaction version of the fence of `epoch`; further commits of the epoch count up from it."""
    return epoch << _EPOCH_SHIFT


Step = Literal["fence", "publish", "errors", "history", "shed"]  # the last two are in a history's log


@dataclass(frozen=True, slots=True)
class CommitNote:
    """The facts about a commit that this package writes into its userMetadata."""

    table_uuid: str
    refresh_id: str
    epoch: int
    step: Step
    txn_version: int
    merge_round: int = 0
    chunks: int = 0
    upper: int = 0
    definition_hash: str = ""
    is_final: bool = False
    part: int = 0  # part of a progressive refresh, from 1; 0 is a commit of everything
    num_errors: int = 0  # rows in the error table after a commit of step "errors"
    keeps_rows: bool = False  # its deletes were left out, as a person has decided
    # Of a publish: main's version that its corrections were computed against; of a history: its own version that was
    # read to decide what to write.
    base: int | None = None
    reached: int | None = None  # of a history: main's version up to which it has every row's versions
    mark: str | None = None  # of a history: of this package's newest commit in main up to there
    valid_ms: int | None = None  # of a history: from when its newest versions are valid
    why: str | None = None  # of a history: what is unusual in how it was written, for the refresh's report

    def of_history(
        self, reached: int | None, mark: str | None, valid_ms: int | None, base: int | None = None
    ) -> CommitNote:
        """Return the note of a commit that brings a history to a version of main."""
        return replace(self, reached=reached, mark=mark, valid_ms=valid_ms, base=base)

    def to_json(self) -> str:
        """Return the commit's userMetadata."""
        facts = asdict(self)
        if not self.keeps_rows:
            del facts["keeps_rows"]
        facts = {name: value for name, value in facts.items() if value is not None}
        return json.dumps({"mv": facts}, sort_keys=True)


def parse_note(text: str | None, table_uuid: str) -> CommitNote | None:
    """Return the note in a commit's userMetadata, or None if the commit is another table's or another writer's."""
    try:
        fields = json.loads(text or "")["mv"]
        note = CommitNote(**fields)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    is_ours = note.table_uuid == table_uuid and _is_sound({name: getattr(note, name) for name in CommitNote.__slots__})
    return note if is_ours else None


_COUNTS = ("epoch", "txn_version", "merge_round", "chunks", "part", "upper", "num_errors")


def _is_sound(fields: Mapping[str, object]) -> bool:
    """True if every fact has its type and sign: any writer of main can write arbitrary text into its log."""
    texts = (fields["refresh_id"], fields["definition_hash"])
    counts = (fields[name] for name in _COUNTS)
    return (
        all(type(text) is str for text in texts)
        and all(map(_is_count, counts))
        and type(fields["is_final"]) is bool
        and type(fields["keeps_rows"]) is bool
        and all(_is_count(fields[name]) for name in ("base", "reached", "valid_ms") if fields[name] is not None)
        and all(_is_text(fields[name]) for name in ("mark", "why") if fields[name] is not None)
        and fields["step"] in get_args(Step)
    )


def _is_text(found: object) -> bool:
    return type(found) is str and found.isprintable()


def _is_count(found: object) -> bool:
    return type(found) is int and 0 <= found < 1 << 63


@dataclass(frozen=True, slots=True)
class Commit:
    """One line of main's history.

    at_ms      : when it was committed, by the clock of the process that committed
    parameters : of its operation, as Delta's log has them
    """

    version: int
    operation: str
    read_version: int | None
    note: CommitNote | None
    metrics: Mapping[str, str] = field(default_factory=dict)
    at_ms: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def mark(self) -> str | None:
        """An id of this commit that is unique even in a restored log; None if the commit is not this package's."""
        return f"{self.note.refresh_id}:{self.note.txn_version}" if self.note else None

    @property
    def shown_operation(self) -> str:
        """The operation as any writer has named it, cut and made printable."""
        name = self.operation[:_MAX_OPERATION]
        return name if name.isprintable() else ascii(name)

    @property
    def keeps_data(self) -> bool:
        """True if this commit is known to change no row."""
        if self.note is not None:
            return self.note.step == "fence"
        return self.operation in KEEPS_DATA


@dataclass(frozen=True, slots=True)
class LogCheck:
    """The state of one refresh according to main's log.

    latest     : main's newest version
    fenced_by  : a later epoch that has written to main; None while this refresh's epoch is the newest
    published  : publish commits of this refresh and round, oldest first
    foreign    : commits since the base that may have changed rows and are not of this refresh's round
    stragglers : the foreign commits that are this refresh's, of an earlier round
    """

    latest: int
    fenced_by: int | None
    published: tuple[Commit, ...]
    foreign: tuple[Commit, ...]
    stragglers: tuple[Commit, ...] = ()

    @property
    def version(self) -> int:
        """The version at which main contains the refresh; the newest one if it needed no commit."""
        return self.published[-1].version if self.published else self.latest

    @property
    def is_overwritten(self) -> bool:
        """True if the last of this refresh's commits overwrote all of main's rows instead of merging corrections."""
        return bool(self.published) and self.published[-1].operation == "WRITE"

    @property
    def keeps_rows(self) -> bool:
        """True if a commit of this refresh, of any round, has left out its deletes."""
        return any(c.note is not None and c.note.keeps_rows for c in (*self.published, *self.stragglers))

    def lacks(self, recorded: Counts) -> bool:
        """True if the last of this refresh's commits is a MERGE that changed fewer rows than were recorded.

        A MERGE with inserts is not asked: it fails if main lacks a row that it should change. More rows prove nothing:
        Spark counts those of a task that it repeats twice.
        """
        found = self.changed(recorded)
        return found.updated < recorded.updated or found.deleted < recorded.deleted

    def changed(self, recorded: Counts) -> Counts:
        """Return `recorded` with no more updates and deletes than the last of this refresh's commits has made."""
        if recorded.inserted or not self.published or self.is_overwritten:
            return recorded
        metrics = self.published[-1].metrics
        updated, deleted = (metrics.get(f"numTargetRows{each}") for each in ("Updated", "Deleted"))
        return replace(
            recorded,
            updated=recorded.updated if updated is None else min(recorded.updated, int(updated)),
            deleted=recorded.deleted if deleted is None else min(recorded.deleted, int(deleted)),
        )

    @property
    def bytes_added(self) -> int:
        """Bytes of data files that this refresh's commits added."""
        names = ("numTargetBytesAdded", "numOutputBytes")  # of a MERGE, of an overwrite
        return sum(int(c.metrics.get(name, 0)) for c in self.published for name in names)


def left_out(commit: Commit | None, recorded: Counts) -> int:
    """Return how many of the recorded deletes a publish commit has left out.

    More than none only if the database was restored to before that decision: else they are recorded no more.
    """
    if commit is None or commit.note is None or not commit.note.keeps_rows:
        return 0
    return max(0, recorded.deleted - int(commit.metrics.get("numTargetRowsDeleted", 0)))


class Move(StrEnum):
    """The next action on main, decided from its log."""

    DONE = "done"
    START_OVER = "start over"
    MERGE = "merge"


def next_move(standing: LogCheck, *, has_changes: bool) -> Move:
    """Decide the next move of the compare-and-append.

    has_changes : the recorded corrections are not empty
    """
    if standing.foreign:
        return Move.START_OVER
    return Move.DONE if standing.published or not has_changes else Move.MERGE


def next_part_move(standing: LogCheck) -> Move:
    """Decide the next move of the compare-and-append of one part of a progressive refresh.

    A part that main contains is recorded first, even beside foreign commits: the step after all parts checks for those.
    """
    if standing.published:
        return Move.DONE
    return Move.START_OVER if standing.foreign else Move.MERGE


def has_fence(commits: Iterable[Commit], epoch: int, refresh_id: str) -> bool:
    """True if `commits` has this refresh's fence of `epoch`: two databases may give the same epoch to two refreshes."""
    notes = (c.note for c in commits if c.note)
    return any(n.step == "fence" and (n.epoch, n.refresh_id) == (epoch, refresh_id) for n in notes)


def has_publish(commits: Iterable[Commit], refresh_id: str) -> bool:
    """True if `commits` has a publish of this refresh, of any epoch and round."""
    return any(_is_publish(c, refresh_id) for c in commits)


def has_kept_rows(commits: Iterable[Commit], refresh_id: str) -> bool:
    """True if `commits` has a publish of this refresh, of any epoch and round, that left out its deletes."""
    return any(_is_publish(c, refresh_id) and c.note is not None and c.note.keeps_rows for c in commits)


def classify_commits(
    commits: Sequence[Commit],
    *,
    base: int,
    latest: int,
    refresh_id: str,
    epoch: int,
    merge_round: int,
    part: int | None = None,
) -> LogCheck:
    """Classify main's commits after `base`, the version that the differences were computed against.

    A later epoch fences this refresh wherever it stands in `commits`, also when its fence is not after `base`.
    If Delta rebased a publish over another writer's commit, that commit is in `commits` too and counts as foreign; it
    makes a further round of corrections necessary.
    A commit of an earlier round is foreign too: its outcome was unknown, the round was given up, and it came late.

    merge_round : the round whose corrections were computed against `base`
    part : the part of a progressive refresh whose commits `published` is to hold; its other parts are not foreign
    """
    after = sorted((c for c in commits if c.version > base), key=lambda c: c.version)
    newest = max(last_epoch(commits), epoch)
    ours = tuple(c for c in after if _is_publish(c, refresh_id))
    of_round = tuple(c for c in ours if c.note and c.note.merge_round == merge_round)
    foreign = tuple(c for c in after if not c.keeps_data and c not in of_round)
    published = tuple(c for c in of_round if part is None or (c.note and c.note.part == part))
    stragglers = tuple(c for c in ours if c not in of_round)
    return LogCheck(latest, newest if newest > epoch else None, published, foreign, stragglers)


def _is_publish(commit: Commit, refresh_id: str) -> bool:
    note = commit.note
    return note is not None and note.step == "publish" and note.refresh_id == refresh_id


def last_epoch(commits: Iterable[Commit]) -> int:
    """Return the latest epoch that wrote to main; 0 if no commit is this package's."""
    return max((c.note.epoch for c in commits if c.note), default=0)


def overtaken_by(commits: Iterable[Commit], refresh_id: str, first_epoch: int) -> Commit | None:
    """Return the first commit of a refresh that began after this one; None if there is none.

    A refresh begins only after the previous one has ended. So this one has ended, even if the database contradicts: the
    database was restored to an older state, or a second one is in use for the same main.

    first_epoch : the epoch under which this refresh began
    """
    later = (c for c in commits if c.note and c.note.refresh_id != refresh_id and c.note.epoch >= first_epoch)
    return min(later, key=lambda c: c.version, default=None)


def whole_publish(commits: Iterable[Commit], refresh_id: str, before: Commit | None = None) -> Commit | None:
    """Return the commit that completed a refresh's publish, if no other writer changed main since its fence.

    If its first commit is a publish, main must not have changed since the version that this one was computed against.

    before : the first commit of the next refresh; it and all later commits are ignored
    """
    known = sorted((c for c in commits if before is None or c.version < before.version), key=lambda c: c.version)
    ours = [c for c in known if c.note and c.note.refresh_id == refresh_id]
    whole = [c for c in ours if _is_publish(c, refresh_id) and c.note and c.note.is_final]
    if not whole:
        return None
    since = ours[0].version
    if (first := ours[0].note) is not None and first.base is not None:
        since = first.base
    return whole[-1] if all(c.keeps_data or c in ours for c in known if c.version > since) else None


@dataclass(frozen=True, slots=True)
class Span:
    """The commits with which one refresh has published.

    before   : main's version that the first of them changed
    after    : main's version that the last of them left
    is_mixed : other commits between them may have changed rows, too
    """

    before: int
    after: int
    is_mixed: bool = False


def published_span(commits: Iterable[Commit], refresh_id: str) -> Span | None:
    """Return the span of a refresh's publish commits; None if `commits` does not show where it begins.

    It does if an earlier commit is main's first, or another refresh's: a refresh begins only after the one before it.
    """
    known = list(commits)
    ours = [c for c in known if _is_publish(c, refresh_id)]
    if not ours:
        return None
    first, last = min(c.version for c in ours), max(c.version for c in ours)
    before = (c for c in known if c.version < first)
    if not any(c.version == 0 or (c.note is not None and c.note.refresh_id != refresh_id) for c in before):
        return None
    others = (c for c in known if first < c.version < last and not c.keeps_data and c not in ours)
    return Span(first - 1, last, any(others))


def next_txn_version(commits: Iterable[Commit], epoch: int) -> int:
    """Return the transaction version for the next commit of `epoch`: one more than the last in the log."""
    last = max((c.note.txn_version for c in commits if c.note), default=0)
    return max(last, fence_version(epoch)) + 1


def last_of_ours(commits: Iterable[Commit], version: int) -> Commit | None:
    """Return this package's newest commit up to `version`; None if `commits` has none."""
    return max((c for c in commits if c.note and c.version <= version), key=lambda c: c.version, default=None)


def mark_at(commits: Iterable[Commit], version: int) -> str | None:
    """Return the mark of this package's newest commit up to `version`: a publish that left main there records it."""
    known = last_of_ours(commits, version)
    return known.mark if known else None


def version_beside(main: Iterable[Commit], version: int, beside: Iterable[Commit]) -> int | None:
    """Return the version of a table that refreshes write beside main which belongs to main's `version`.

    main, beside : both logs, whole
    returns      : the last commit there of a refresh that main's log up to `version` shows, and that published nothing
                   to main later; None if there is none
    """
    main = list(main)
    later = {c.note.refresh_id for c in main if c.note and c.note.step == "publish" and c.version > version}
    shown = {c.note.refresh_id for c in main if c.note and c.version <= version} - later
    return max((c.version for c in beside if c.note and c.note.refresh_id in shown), default=None)


def is_untouched_since(commits: Sequence[Commit], version: int) -> bool:
    """True if every commit after `version` is known to have changed no row of main."""
    return all(c.keeps_data for c in commits if c.version > version)
