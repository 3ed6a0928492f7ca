"""The state of a topic: its identity, and how far each of its partitions is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.exceptions import (
    SourceRegressedError,
    SourceReplacedError,
    StreamGoneError,
    StreamReloadError,
)


class Order(StrEnum):
    """How a topic's state relates to an earlier one."""

    SAME = "same"
    AHEAD = "ahead"
    BEHIND = "behind"
    ANOTHER = "another"


@dataclass(frozen=True, slots=True)
class KafkaFrontier(Frontier):
    """A topic up to an offset in each partition.

    cluster, topic_id : identify the topic; one that is made again under the same name has another id
    offsets           : by partition, the first offset that is not read; a partition that is added later begins at 0
    begin             : by partition, where reading begins; None continues from the last publish
    value_schema, key_schema : what the definition's schema files have, so that a retry decodes as the first attempt
    at_ms             : a time at which no record after the offsets was written yet; None if that is not known. A topic
                        is in the same state whenever it is asked
    """

    type = "kafka"

    cluster: str
    topic: str
    topic_id: str
    offsets: tuple[int, ...]
    begin: tuple[int, ...] | None = None
    value_schema: str | None = None
    key_schema: str | None = None
    at_ms: int | None = field(default=None, compare=False)

    @property
    def continues(self) -> bool:
        """See `Frontier`."""
        return self.begin is None

    def versions(self) -> Mapping[str, str]:
        """See `Frontier`."""
        return {"": ",".join(f"{partition}:{offset}" for partition, offset in enumerate(self.offsets))}

    def describe(self) -> str:
        """See `Frontier`."""
        shown = ", ".join(f"{each}" for each in self.offsets[:8])
        more = ", ..." if len(self.offsets) > 8 else ""
        start = "" if self.begin is None else ", from its start"
        return f"{self.topic} up to {shown}{more}{start}"

    def to_json(self) -> dict[str, Any]:
        """See `Frontier`."""
        found: dict[str, Any] = {"type": self.type, "cluster": self.cluster, "topic": self.topic}
        found |= {"topic_id": self.topic_id, "offsets": list(self.offsets)}
        more = {"value_schema": self.value_schema, "key_schema": self.key_schema, "at_ms": self.at_ms}
        found |= {name: value for name, value in more.items() if value is not None}
        return found | {"begin": None if self.begin is None else list(self.begin)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """See `Frontier`."""
        begin = stored["begin"]
        return cls(
            *(stored["cluster"], stored["topic"], stored["topic_id"], tuple(stored["offsets"])),
            None if begin is None else tuple(begin),
            *(stored.get("value_schema"), stored.get("key_schema"), stored.get("at_ms")),
        )

    def from_start(self, lows: Sequence[int]) -> KafkaFrontier:
        """Return the same end, read from the topic's start.

        lows : by partition, the lowest offset that is still there
        """
        return replace(self, begin=tuple(min(low, end) for low, end in zip(lows, self.offsets, strict=True)))


def compared(then: KafkaFrontier, now: KafkaFrontier) -> Order:
    """Return how `now` relates to the earlier state `then`; where reading began does not matter."""
    if (then.cluster, then.topic_id) != (now.cluster, now.topic_id):
        return Order.ANOTHER
    if len(now.offsets) < len(then.offsets):
        return Order.BEHIND
    before = _padded(then.offsets, len(now.offsets))
    if any(new < old for old, new in zip(before, now.offsets, strict=True)):
        return Order.BEHIND
    return Order.SAME if before == now.offsets else Order.AHEAD


def check_continues(then: KafkaFrontier, now: KafkaFrontier) -> None:
    """Check that a topic continues from an earlier state, and is decoded as then.

    raises : SourceReplacedError, SourceRegressedError; StreamReloadError, if a schema file has changed
    """
    match compared(then, now):
        case Order.ANOTHER:
            what = "cluster" if then.cluster != now.cluster else "topic"
            problem = f"another {what} answers as {now.topic!r} than at the last publish: it was made again."
            raise SourceReplacedError("source", problem)
        case Order.BEHIND:
            pairs = zip(_padded(then.offsets, len(now.offsets)), now.offsets, strict=False)
            worst = next((f"partition {p}: {new}, was {old}" for p, (old, new) in enumerate(pairs) if new < old), None)
            problem = f"{now.topic} ends before the last publish: {worst or 'the topic has fewer partitions'}."
            raise SourceRegressedError("source", problem)
    changed = {"schema_file": then.value_schema != now.value_schema, "record_key": then.key_schema != now.key_schema}
    if named := [name for name, is_other in changed.items() if is_other]:
        problem = f"the schema that {named[0]} names has changed since the last publish, whose rows are as it was."
        raise StreamReloadError(now.topic, problem)


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets of one partition from `start` up to, and without, `end`."""

    partition: int
    start: int
    end: int


def spans(since: KafkaFrontier | None, until: KafkaFrontier) -> tuple[Span, ...]:
    """Return what is to be read, by partition; partitions with nothing new are left out.

    since : the last publish; None if `until` has where to begin
    """
    return tuple(
        Span(partition, start, end)
        for partition, (start, end) in enumerate(zip(starts_of(since, until), until.offsets, strict=True))
        if start < end
    )


def starts_of(since: KafkaFrontier | None, until: KafkaFrontier) -> tuple[int, ...]:
    """Return where reading begins, by partition. See `spans`."""
    known = until.begin if since is None else since.offsets
    assert known is not None, "a frontier that continues needs the one that it continues from"
    return _padded(known, len(until.offsets))


def least(frontiers: Sequence[KafkaFrontier]) -> tuple[int, ...]:
    """Return, by partition, how far all of these states of one topic are; at least one state."""
    num = max(len(each.offsets) for each in frontiers)
    return tuple(min(ends) for ends in zip(*(_padded(each.offsets, num) for each in frontiers), strict=True))


def num_offsets(wanted: Sequence[Span]) -> int:
    """Return at most how many records lie there: transactions and compaction leave gaps."""
    return sum(span.end - span.start for span in wanted)


def check_kept(topic: str, wanted: Sequence[Span], lows: Sequence[int]) -> None:
    """Check that no record that is to be read was removed by retention.

    lows   : by partition, the lowest offset that is still there
    raises : StreamGoneError
    """
    for span in wanted:
        if span.start < lows[span.partition]:
            problem = (
                f"{topic} begins at offset {lows[span.partition]} of partition {span.partition}, after"
                f" {span.start}, where the last publish ended: records were removed before they were read."
            )
            raise StreamGoneError("source", problem)


def check_deletes_kept(topic: str, wanted: Sequence[Span], kept: Sequence[int], kept_ms: int) -> None:
    """Check that compaction has removed no delete before it was read. It removes them without moving the start.

    kept    : by partition, the first offset of a record that is younger than deletes are kept
    kept_ms : for how long they are
    raises  : StreamGoneError
    """
    for span in wanted:
        if span.start < kept[span.partition]:
            problem = (
                f"{topic} is compacted, with delete.retention.ms={kept_ms}: records of partition {span.partition}"
                f" between {span.start}, where the last publish ended, and {kept[span.partition]} are older than that,"
                " so deletes may have been removed before they were read."
            )
            raise StreamGoneError("source", problem)


def _padded(offsets: Sequence[int], num: int) -> tuple[int, ...]:
    return (*offsets, *([0] * (num - len(offsets))))
