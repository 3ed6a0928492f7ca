"""Which files a source's path stands for, and which lie beside them and are passed over.

A path stands for the file of that name, or for the files of the folder of that name and of its partition folders
(`m=2`). Names that begin with `_` or `.`, or end in `._COPYING_`, are Hadoop's for what is not data, or not yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_GLOB = re.compile(r"[*?\[{\\]")
_PARTITION = re.compile(r"[^=/]+=[^/]*\Z")
_HIDDEN = re.compile(r"(?:\{(?:[^}]*,)?|\[(?!\^|!)[^\]]*)?[_.]")
_COPYING = "._COPYING_"
# What writers leave beside their files: markers, checksums and the like, which nobody takes for data.
_MARKER = re.compile(
    r"_(?:SUCCESS|FAILURE|metadata|common_metadata|spark_metadata|temporary|committed_.*|started_.*|delta_log|mv)\Z"
    r"|\.(?:.*\.crc|hive-staging.*|spark-staging.*)\Z"
)
_NUM_SHOWN = 3


def is_glob(path: str) -> bool:
    """True if a path may stand for several."""
    return _GLOB.search(path) is not None


def folder_of(pattern: str) -> str:
    """Return the folder that must be there for a glob to have any meaning."""
    return _GLOB.split(pattern, maxsplit=1)[0].rpartition("/")[0] or "/"


def has_one_depth(pattern: str) -> bool:
    """True if whatever a glob matches has as many segments as it has itself: no alternative has a slash in it."""
    return all(piece.count("{") == piece.count("}") for piece in pattern.split("/"))


def names_hidden(pattern: str) -> bool:
    """True if a path asks by name for files that Spark takes for hidden; a folder of such a name is read."""
    name = pattern.rstrip("/").rpartition("/")[2]
    is_folder = not is_glob(name) and "." not in name[1:]
    is_hidden = name.endswith(_COPYING) or (_HIDDEN.match(name) is not None and not _PARTITION.match(name))
    return is_hidden and not is_folder


def is_passed_over(name: str) -> bool:
    """True if Spark takes a file or folder of this name for hidden, and nobody would expect that of it."""
    is_hidden = name.endswith(_COPYING) or (name[:1] in ("_", ".") and not _PARTITION.match(name))
    return is_hidden and _MARKER.match(name) is None


def divided(pattern: str, paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the files that a path stands for, and those that lie in folders below that are no partitions.

    paths : of all files below whatever the glob matches
    """
    depth = len(pattern.rstrip("/").split("/"))
    meant, beside = list[str](), list[str]()
    for path in paths:
        folders = path.split("/")[depth:-1]
        (meant if all(_PARTITION.match(folder) for folder in folders) else beside).append(path)
    return meant, beside


def partition_folders(pattern: str, paths: Iterable[str]) -> list[str]:
    """Return the partition folders in which files lie that a path stands for, in their order."""
    depth = len(pattern.rstrip("/").split("/"))
    return sorted({path.rpartition("/")[0] for path in paths if len(path.split("/")) > depth + 1})


def told(paths: Sequence[str]) -> str:
    """Return a few of the files that were passed over, for a log line and a report."""
    shown = ", ".join(sorted(paths)[:_NUM_SHOWN])
    more = len(paths) - _NUM_SHOWN
    return f"passed over: {shown}" + (f" and {more:,} more" if more > 0 else "")
