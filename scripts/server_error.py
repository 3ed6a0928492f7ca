"""The one error of the servers that the tests and the demos start."""

from __future__ import annotations


class ServerError(Exception):
    """A server did not start, or could not be fetched; says why."""
