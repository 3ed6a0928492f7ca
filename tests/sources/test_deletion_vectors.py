"""Deletion vectors that Delta does not write in a small test, and damaged ones; Delta's own: tests/engine."""

from __future__ import annotations

import struct
import zlib
from base64 import b85encode

import pytest

from airflow_mv_provider.sources.delta.deletion_vectors import _B85, _Z85, decoded, file_of, positions
from airflow_mv_provider.sources.delta.file_actions import VectorPlace

MAGIC = struct.pack("<i", 1681511377)
# The protocol's own example, of the positions 3, 4, 7, 11, 18 and 29; in a format that Delta no longer writes.
NATIVE = VectorPlace("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 0, 40, 6)


def stored(data, num_deleted, *, checksum=None, offset=1):
    """Return a vector and the file that has it."""
    tail = struct.pack(">I", zlib.crc32(data) if checksum is None else checksum)
    content = b"\1".ljust(offset, b"x") + struct.pack(">i", len(data)) + data + tail
    return VectorPlace("u", "ab^-aqEH.-t@S}K{vb[*k^", offset, len(data), num_deleted), content


def bitmaps(*each):
    return MAGIC + struct.pack("<q", len(each)) + b"".join(struct.pack("<I", high) + bitmap for high, bitmap in each)


def array(*values):
    head = struct.pack("<IIHHI", 12346, 1, 0, len(values) - 1, 16)
    return head + struct.pack(f"<{len(values)}H", *values)


def runs(*starts_and_lengths):
    num = sum(length for _, length in starts_and_lengths)
    pairs = (half for start, length in starts_and_lengths for half in (start, length - 1))
    head = struct.pack("<IBHH", 12347, 1, 0, num - 1)
    return head + struct.pack(f"<H{2 * len(starts_and_lengths)}H", len(starts_and_lengths), *pairs)


def of(vector, content=b""):
    return list(positions(decoded(vector, content), {}))


def test_vector_in_the_log_itself():
    data = bitmaps((0, array(3, 4, 7, 11, 18, 29)))
    padded = data.ljust(-(-len(data) // 4) * 4, b"\0")
    text = b85encode(padded).translate(bytes.maketrans(_B85, _Z85)).decode()
    vector = VectorPlace("i", text, 0, len(data), 6)

    assert (of(vector), file_of(vector, "/t")) == ([3, 4, 7, 11, 18, 29], None)


def test_positions_beyond_32_bits():
    vector, content = stored(bitmaps((0, array(1, 65_535)), (2, array(5))), 3, offset=9)

    assert of(vector, content) == [1, 65_535, (2 << 32) + 5]


def test_runs():
    vector, content = stored(bitmaps((0, runs((3, 2), (65_000, 536)))), 538)

    assert of(vector, content) == [3, 4, *range(65_000, 65_536)]


def test_positions_of_one_that_another_lacks():
    (of_two, content), (of_one, other) = stored(bitmaps((0, array(1, 2))), 2), stored(bitmaps((0, array(2))), 1)
    two, one = decoded(of_two, content), decoded(of_one, other)

    assert (list(positions(two, one)), list(positions(one, two))) == ([1], [])


OF_PROTOCOL = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"  # its example


@pytest.mark.parametrize(
    ("vector", "path"),
    [
        (VectorPlace("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6), f"/t/ab/{OF_PROTOCOL}"),
        (VectorPlace("u", "^-aqEH.-t@S}K{vb[*k^", 4, 40, 6), f"/t/{OF_PROTOCOL}"),
        (VectorPlace("p", "s3://bucket/v.bin", 4, 40, 6), "s3://bucket/v.bin"),
    ],
)
def test_file_that_has_it(vector, path):
    assert file_of(vector, "/t") == path


def test_place_of_an_unknown_sort_is_refused():
    with pytest.raises(ValueError, match="stored as 'z'"):
        file_of(VectorPlace("z", "", 0, 0, 0), "/t")


ONE = bitmaps((0, array(7)))


@pytest.mark.parametrize(
    ("vector", "content", "problem"),
    [
        (NATIVE, b"", "unknown format"),
        (*stored(ONE, 2), "has 1 positions, expected 2"),
        (*stored(ONE, 1, checksum=3), "damaged"),
        (*stored(b"\0\0\0\0" + ONE[4:], 1), "unknown format 0"),
        (*stored(bitmaps((0, b"\0" * 40)), 1), "unknown format 0"),
        (*stored(ONE[:-1], 1), "ends too early"),
        (stored(ONE, 1)[0], b"\1", "ends too early"),
        (stored(ONE, 1)[0], stored(ONE + b"x", 1)[1], "damaged"),
    ],
)
def test_damaged_one_is_refused(vector, content, problem):
    with pytest.raises(ValueError, match=problem):
        decoded(vector, content)
