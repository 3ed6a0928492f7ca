"""How large main is, as its log shows it."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.fence import Commit
from airflow_mv_provider.core.progress.table_size import size_after

APPEND, OVERWRITE = {"mode": "Append"}, {"mode": "Overwrite"}
IN_PART = OVERWRITE | {"predicate": "p = 1"}


def commit(version, operation, parameters=None, **metrics):
    found = {name: str(value) for name, value in metrics.items()}
    return Commit(version, operation, version - 1, None, found, parameters=parameters or {})


CREATED = (commit(0, "CREATE TABLE"), commit(1, "WRITE", APPEND, numOutputBytes=0, numOutputRows=0))


@pytest.mark.parametrize(
    ("commits", "size"),
    [
        ((), 1000),
        ((commit(1, "MERGE", numTargetBytesAdded=70, numTargetBytesRemoved=50),), 1020),
        ((commit(1, "WRITE", APPEND, numOutputBytes=7),), 1007),
        ((commit(1, "WRITE", OVERWRITE, numOutputBytes=7),), 7),
        ((commit(1, "WRITE", IN_PART, numOutputBytes=7, numRemovedBytes=9),), 998),
        ((commit(1, "WRITE", IN_PART, numOutputBytes=7),), None),
        ((commit(1, "OPTIMIZE", numAddedBytes=10, numRemovedBytes=500),), 510),
        ((commit(1, "DELETE", numAddedBytes=10, numRemovedBytes=20),), 990),
        ((commit(1, "DELETE", numRemovedFiles=1), commit(2, "RESTORE", tableSizeAfterRestore=44)), 44),
        ((commit(1, "MERGE", numTargetRowsUpdated=1),), None),
        ((commit(1, "SET TBLPROPERTIES"), commit(2, "VACUUM START", numFilesToDelete=3)), 1000),
        ((commit(1, "something new"),), None),
        ((commit(2, "OPTIMIZE", numAddedBytes=10, numRemovedBytes=500),), None),  # version 1 is not known
    ],
)
def test_size_follows_each_commit_or_is_unknown(commits, size):
    until = max((each.version for each in commits), default=0)

    assert size_after(0, 1000, (*commits, *commits[::-1]), until) == size


def test_size_begins_where_main_was_created_and_ends_at_the_version():
    write = commit(2, "WRITE", OVERWRITE, numOutputBytes=30)
    later = commit(3, "MERGE", numTargetBytesAdded=5, numTargetBytesRemoved=0)

    assert size_after(None, None, (*CREATED, write, later), 2) == 30
    assert size_after(None, None, (*CREATED, write, later), 3) == 35
    assert size_after(1, None, (write, later), 3) == 35, "an overwrite does not need what was before"
    assert size_after(1, None, (commit(2, "MERGE", numTargetBytesAdded=5, numTargetBytesRemoved=0),), 2) is None
