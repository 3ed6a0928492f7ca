"""Decode Delta's deletion vectors: sets of positions of rows in a data file, stored as Roaring bitmaps.

    bytes ──▶ blocks of 65,536 positions, an integer with a bit for each ──▶ positions that one has and another lacks

source : Delta protocol, "Deletion Vector Format"; https://github.com/RoaringBitmap/RoaringFormatSpec
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airflow_mv_provider.sources.delta.file_actions import VectorPlace

Blocks = Mapping[int, int]
"""Positions, as bits of an integer for each block that has any: bit b of block n is the position 65,536 n + b."""

_MAGIC = 1681511377  # the portable format, the only one that is written to files
_WITHOUT_RUNS, _WITH_RUNS = 12346, 12347
_MAX_ARRAY, _BITMAP_BYTES, _BLOCK = 4096, 8192, 1 << 16
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_PYTHONS = bytes.maketrans(_Z85, _B85)
_UUID_LENGTH = 20


def file_of(vector: VectorPlace, table: str) -> str | None:
    """Return the path of the file that has a deletion vector; None for one that is stored in the log.

    table  : the table's location
    raises : ValueError
    """
    if vector.storage == "i":
        return None
    if vector.storage == "p":
        return vector.text
    if vector.storage != "u":
        raise ValueError(f"a deletion vector is stored as {vector.storage!r}")
    folder, encoded = vector.text[:-_UUID_LENGTH], vector.text[-_UUID_LENGTH:]
    name = f"deletion_vector_{uuid.UUID(bytes=_z85(encoded))}.bin"
    return f"{table}/{folder}/{name}" if folder else f"{table}/{name}"


def decoded(vector: VectorPlace, content: bytes) -> Blocks:
    """Return the positions of a deletion vector.

    content : of the file that has it; not used for one that is stored in the log
    raises  : ValueError, if it is damaged, or has another number of positions than the log says
    """
    try:
        blocks = _blocks(_z85(vector.text)[: vector.num_bytes] if vector.storage == "i" else _stored(vector, content))
    except (struct.error, IndexError) as error:
        raise ValueError("a deletion vector ends too early") from error
    if (found := sum(bits.bit_count() for bits in blocks.values())) != vector.num_deleted:
        raise ValueError(f"a deletion vector has {found:,} positions, expected {vector.num_deleted:,}")
    return blocks


def positions(of: Blocks, without: Blocks) -> Iterator[int]:
    """Yield the positions that `of` has and `without` lacks, in ascending order."""
    for block in sorted(of):
        bits = of[block] & ~without.get(block, 0)
        for at, byte in enumerate(bits.to_bytes(_BITMAP_BYTES, "little")):
            if byte:
                yield from (block * _BLOCK + at * 8 + bit for bit in range(8) if byte >> bit & 1)


def _z85(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(_TO_PYTHONS))


def _stored(vector: VectorPlace, content: bytes) -> bytes:
    """Return the bytes of a vector in a file: its size, its data, a checksum of them."""
    (num_bytes,) = struct.unpack_from(">i", content, vector.offset)
    start = vector.offset + 4
    data = content[start : start + num_bytes]
    (checksum,) = struct.unpack_from(">I", content, start + num_bytes)
    if num_bytes != vector.num_bytes or zlib.crc32(data) != checksum:
        raise ValueError("a deletion vector is damaged: its size or checksum is not the one that was written")
    return data


@dataclass(slots=True)
class _Cursor:
    data: bytes
    at: int = 0

    def take(self, kind: str) -> tuple[int, ...]:
        return struct.unpack(f"<{kind}", self.take_bytes(struct.calcsize(f"<{kind}")))

    def take_bytes(self, num_bytes: int) -> bytes:
        found = self.data[self.at : self.at + num_bytes]
        self.at += num_bytes
        return found


def _blocks(data: bytes) -> dict[int, int]:
    cursor = _Cursor(data)
    magic, num_bitmaps = cursor.take("iq")
    if magic != _MAGIC:
        raise ValueError(f"a deletion vector has the unknown format {magic}")
    found: dict[int, int] = {}
    for _ in range(num_bitmaps):
        (high,) = cursor.take("I")
        found |= {high * _BLOCK + low: bits for low, bits in _bitmap(cursor)}
    return found


def _bitmap(cursor: _Cursor) -> Iterator[tuple[int, int]]:
    """Yield the blocks of one bitmap of 32 bits: the upper half of the positions, and the bits of the lower one."""
    (cookie,) = cursor.take("I")
    has_runs = cookie & 0xFFFF == _WITH_RUNS
    if not has_runs and cookie != _WITHOUT_RUNS:
        raise ValueError(f"a deletion vector has the unknown format {cookie}")
    num_blocks = (cookie >> 16) + 1 if has_runs else cursor.take("I")[0]
    run_flags = cursor.take(f"{(num_blocks + 7) // 8}B") if has_runs else ()
    heads = cursor.take(f"{2 * num_blocks}H")
    if not has_runs or num_blocks >= 4:
        cursor.take(f"{num_blocks}I")  # where each block begins, which follows from their sizes
    for number in range(num_blocks):
        is_runs = has_runs and bool(run_flags[number // 8] >> number % 8 & 1)
        yield heads[2 * number], _block(cursor, heads[2 * number + 1] + 1, is_runs=is_runs)


def _block(cursor: _Cursor, num_positions: int, *, is_runs: bool) -> int:
    if is_runs:
        (num_runs,) = cursor.take("H")
        runs = cursor.take(f"{2 * num_runs}H")
        return sum(((2 << length) - 1) << start for start, length in zip(runs[::2], runs[1::2], strict=True))
    if num_positions > _MAX_ARRAY:
        return int.from_bytes(cursor.take_bytes(_BITMAP_BYTES), "little")
    found = bytearray(_BITMAP_BYTES)
    for each in cursor.take(f"{num_positions}H"):
        found[each >> 3] |= 1 << (each & 7)
    return int.from_bytes(found, "little")
