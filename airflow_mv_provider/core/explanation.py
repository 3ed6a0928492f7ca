"""Why refreshes of a table whose source is a query are incremental or not; `amv explain` prints it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why something is not incremental.

    advice : how to write it so that it is; None if there is no other way
    """

    reason: str
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Following:
    """How a query follows the changes of its inputs.

    columns  : the columns by which what is touched is computed again; none if each row comes from one row of its input
    obstacle : why changes of no input can be followed; None if some can
    inputs   : by name, why changes of it cannot; None if they can
    """

    columns: tuple[str, ...] = ()
    obstacle: Obstacle | None = None
    inputs: tuple[tuple[str, Obstacle | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether refreshes of a table whose source is a query can be incremental, whatever changes.

    following : None if its source is no query
    obstacle  : what else in the definition prevents it
    """

    table: str
    following: Following | None = None
    obstacle: str | None = None

    @property
    def is_incremental(self) -> bool:
        """True if changes of every input are followed."""
        of = self.following
        return (
            of is not None
            and self.obstacle is None
            and of.obstacle is None
            and all(obstacle is None for _, obstacle in of.inputs)
        )
