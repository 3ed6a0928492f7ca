"""Which expressions name the origin of a record."""

from __future__ import annotations

import pytest

from airflow_mv_provider.sources.files.positions import named_in


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("_file", {"_file"}),
        ("`_file`", {"_file"}),
        ("_file_time AS t", {"_file_time"}),
        ("concat(_file,_position) AS place", {"_file", "_position"}),
        ("my_file", set()),
        ("t._file", set()),
        ("_files", set()),
        ("_metadata.file_path", set()),
    ],
)
def test_names_are_whole_words_without_a_table(expression, names):
    assert named_in([expression, "id"]) == names
