"""What the checks of a snapshot have found, and what follows from it.

    fail        the refresh is refused        hold  it waits for a person's decision
    quarantine  the rows are left out of main and kept in the error table
    warn        it is only reported

Results are part of the seal: they are computed once, over exactly the rows that are merged, and a takeover judges by
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_mv_provider.core.definition.checks import Severity
from airflow_mv_provider.core.guard import Refusal

ALL, PART, CHANGED = "all rows", "the rows of some partitions", "changed rows"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    name, text : as in the definition; what it demands, in words
    of         : the rows that were looked at, in words
    num_rows   : how many these are
    num_failed : rows that do not pass; of `unique`, values that occur more than once; of `expect`, 1 or 0
    skipped    : why it was not evaluated; None if it was
    """

    name: str
    rule: str
    text: str
    severity: Severity
    of: str
    num_rows: int = 0
    num_failed: int = 0
    skipped: str | None = None

    @property
    def is_passed(self) -> bool:
        """True if the rule holds; also if it was not evaluated."""
        return not self.num_failed

    @property
    def sentence(self) -> str:
        """The result in words, with the check's name and a full stop."""
        return f"{self.name}: {self._found}."

    @property
    def _found(self) -> str:
        if self.skipped is not None:
            return f"not evaluated, because {self.skipped}"
        if self.is_passed:
            return f"holds for {self._rows}"
        if self.rule == "expect":
            return f"{self.text} does not hold for {self._rows}"
        if self.rule == "unique":
            values = "1 value occurs" if self.num_failed == 1 else f"{self.num_failed:,} values occur"
            return f"{values} more than once in {self._rows}"
        left_out = ", and left out" if self.severity == "quarantine" else ""
        rows = "row breaks" if self.num_failed == 1 else "rows break"
        return f"{self.num_failed:,} {rows} `{self.text}`, of {self._rows}{left_out}"

    @property
    def _rows(self) -> str:
        return f"{self.num_rows:,} {self.of.removeprefix('all ')}"


def failed(results: Sequence[CheckResult], severity: Severity) -> tuple[CheckResult, ...]:
    """Return the checks of this severity that do not hold."""
    return tuple(each for each in results if each.severity == severity and not each.is_passed)


def objections(results: Sequence[CheckResult]) -> tuple[Refusal, ...]:
    """Return why a person has to decide, one refusal for each check of severity `hold` that does not hold."""
    return tuple(
        Refusal(f"check {each.name}", each.sentence.removeprefix(f"{each.name}: ")) for each in failed(results, "hold")
    )


def why_refused(results: Sequence[CheckResult]) -> str | None:
    """Return why the refresh must not publish: all checks of severity `fail` that do not hold; None if all hold."""
    return " ".join(each.sentence for each in failed(results, "fail")) or None
