from __future__ import annotations

from airflow_mv_provider.core.progress.file_rows import (
    FileRows,
    KeptCopy,
    are_kept,
    copies_of,
    is_mostly_outdated,
    total,
)

COPY, OTHER = KeptCopy("a/1-all", 10, 100), KeptCopy("b/2-new", 2, 20)


def rows(num_rows: int, copy: KeptCopy | None = None) -> FileRows:
    return FileRows((num_rows, num_rows * 3, num_rows * 5), "file:/x", copy)


def test_sums_of_files_add_up_to_those_of_all_rows():
    assert total([]) == (0, 0, 0)
    assert total([(1, 0b101, 7), (2, 0b011, 8)]) == (3, 0b110, 15)


def test_only_copies_with_rows_of_a_file_are_needed():
    assert copies_of([rows(6, COPY), rows(0, OTHER), rows(3)]) == {COPY}


def test_files_without_rows_need_no_copy():
    assert are_kept([rows(6, COPY), rows(0)])
    assert not are_kept([rows(6, COPY), rows(1)])


def test_copies_are_outdated_once_files_have_less_than_half_of_their_rows():
    assert not is_mostly_outdated([rows(4, COPY), rows(2, OTHER)])
    assert is_mostly_outdated([rows(3, COPY), rows(2, OTHER)])
    assert not is_mostly_outdated([rows(5), rows(0, COPY)])
