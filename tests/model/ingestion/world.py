"""The world of the model of an ingestion: one topic that two outputs share, its consumer group, and two processes.

    ┌ upstream ─────────────────────────────────────────────────────────────────────────────────────────────┐
    │ topic    which one of its name it is, where it ends, the lowest record that retention has left          │
    │ group    the offset that was released to it; a topic that is dropped takes it along                     │
    ├ for each output ────────────────────────────────────────────────────────────────────────────────────────┤
    │ row      the state row, as in the model of one table                                                    │
    │ bindings of upper 1, 2, ...: what each of them stands for                                               │
    │ refresh  the refresh under way: its pin, whether it is sealed, its hold                                 │
    │ main     its rows, the newest epoch and refresh that wrote, whether others have written since           │
    ├ in memory ──────────────────────────────────────────────────────────────────────────────────────────────┤
    │ workers  each stands before its next step; a run of the ingestion, or a refresh of one output           │
    └─────────────────────────────────────────────────────────────────────────────────────────────────────────┘

A record is a number that is appended to main's rows: what is lost is missing there, what is read twice is there twice.
What a refresh does with its own table is what the model of one table explores; here a fence is one step, a commit is
one, and a later epoch's fence makes an older one's commit fail.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from airflow_mv_provider.sources.kafka.frontier import KafkaFrontier
from tests.model.world import NORMAL, Row

OUTPUTS = (0, 1)
FOREIGN = -1
Rows = tuple[int, ...]  # of generation g, offset n: 10 * g + n


class Design(NamedTuple):
    """What is shipped, or in what a design is weaker.

    is_log            : the source is a log, of which only what came since is read; else a snapshot that a run holds
    is_complete       : the log from its start gives the whole table, so that nothing of it is removed, and a person may
                        start over
    fixes_one_state   : a run fixes one state for all outputs; else each finds its own
    binds             : a refresh that is continued is read up to what was bound when it began; else up to the present
    continues_own     : a refresh continues from its own last publish; else from what was released to the group
    releases          : "after publish", or "when sealed"
    release_of        : how far is released: as far as "all" are, or "the first", or "the run's": those that it has
                        published, or "open" ones: those that are not paused
    knows_topic       : a release looks whether the topic is still the one that was read
    checks_as_it_begins : a run checks by the row from which it acquires a table that the table is where it was when the
                        state was fixed, and not another process's of its caller; else by a look before
    asks_again        : an error that was met with a row that has changed meanwhile is not told; the row is read again
    """

    name: str = "shipped"
    is_log: bool = True
    is_complete: bool = False
    fixes_one_state: bool = True
    binds: bool = True
    continues_own: bool = True
    releases: str = "after publish"
    release_of: str = "all"
    knows_topic: bool = True
    checks_as_it_begins: bool = True
    asks_again: bool = True


class Worker(NamedTuple):
    """One process: the step that it takes next, for which output, and what it remembers.

    what   : "run", "alone" (a refresh of one output) or "reload"
    then   : where it goes after the refresh of an output that it ends has ended
    own    : of each output, the refresh and epoch that it owns
    since  : of each output, which table it was before the state was fixed, and how far it was published
    pin    : the state that was fixed, or that this process found
    found  : of each output, what has become of it: "", "sealed", "in state" or "left behind"
    rows   : of each output that is in the state of the run, its rows then
    """

    at: str = "idle"
    what: str = ""
    output: int = 0
    then: str = ""
    own: tuple[Any, Any] = (None, None)
    since: tuple[Any, Any] = (None, None)
    pin: Any = None
    found: tuple[str, str] = ("", "")
    rows: tuple[Any, Any] = (None, None)
    seen: Any = None
    data: Any = None


IDLE = Worker()


class Topic(NamedTuple):
    """`low`: records before it are gone."""

    generation: int = 1
    end: int = 1
    low: int = 0


class Refresh(NamedTuple):
    """The refresh under way. `lower`: the upper that it continues from; `staged`: what was sealed."""

    pin: KafkaFrontier
    upper: int
    lower: int
    staged: Rows | None = None
    hold: str = ""  # waits, approved, rejected


class Main(NamedTuple):
    """`epoch`, `refresh`: of the newest commit and publish of ours; `is_touched`: others have written since."""

    rows: Rows = ()
    epoch: int = 0
    refresh: int = 0
    is_touched: bool = False


class Output(NamedTuple):
    """One table.

    published      : main's rows at the version of the last publish, which Delta keeps
    since          : the epoch at which it was registered
    origin         : where its rows begin, of a table that was registered when retention had removed records
    is_rolled_back : main was published last by a rollback
    number         : of the newest refresh
    """

    row: Row = Row()
    bindings: tuple[KafkaFrontier, ...] = ()
    refresh: Refresh | None = None
    main: Main = Main()
    published: Rows = ()
    since: int = 0
    origin: int = 0
    number: int = 0
    is_rolled_back: bool = False
    is_paused: bool = False
    is_registered: bool = True

    @property
    def frontier(self) -> KafkaFrontier | None:
        """Of the last publish; None before the first, and where it was a rollback."""
        if not self.row.upper or self.is_rolled_back:
            return None
        return self.bindings[self.row.upper - 1]


class Faults(NamedTuple):
    """How often each thing has happened."""

    sent: int = 0
    crash: int = 0
    expiry: int = 0
    others: int = 0
    refused: int = 0
    held: int = 0
    paused: int = 0
    dropped: int = 0
    rolled_back: int = 0
    made_again: int = 0
    removed: int = 0
    begun: int = 0


class State(NamedTuple):
    topic: Topic
    group: int
    outputs: tuple[Output, Output]
    workers: tuple[Worker, Worker]
    faults: Faults = Faults()


@cache
def frontier(generation: int, end: int, begin: int | None = None) -> KafkaFrontier:
    return KafkaFrontier("cluster", "topic", f"id{generation}", (end,), None if begin is None else (begin,))


def generation_of(found: KafkaFrontier) -> int:
    return int(found.topic_id[2:])


@cache
def records(generation: int, start: int, end: int) -> Rows:
    return tuple(10 * generation + n for n in range(start, end))


def rows_at(found: KafkaFrontier, origin: int) -> Rows:
    """Return the rows that a table should have which was published at this frontier."""
    return records(generation_of(found), origin, found.offsets[0])


def first_state() -> State:
    """Both outputs were published with the first record, and that was released; another record came."""
    row = Row(epoch=1, upper=1, version=1)
    rows = records(1, 0, 1)
    output = Output(row, (frontier(1, 1, 0),), None, Main(rows, 1, 1), rows, number=1)
    assert row.phase == NORMAL
    return State(Topic(1, 2), 1, (output, output), (IDLE, IDLE))


def with_output(state: State, number: int, output: Output) -> State:
    first, second = state.outputs
    return state._replace(outputs=(output, second) if number == 0 else (first, output))
