"""Decide which files a source's path stands for, and which files beside them are passed over, that is, not read.

A path stands for the file of that name, or for the files in the folder of that name and in its partition folders
(`m=2`). In Hadoop, names that begin with `_` or `.`, or end in `._COPYING_`, mark files that are not data, or not yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

from airflow_mv_provider.core.definition.identifier import literal

_GLOB = re.compile(r"[*?\[{\\]")
_PARTITION = re.compile(r"[^=/]+=[^/]*\Z")
_HIDDEN = re.compile(r"(?:\{(?:[^}]*,)?|\[(?!\^|!)[^\]]*)?[_.]")
_COPYING = "._COPYING_"
# Names of markers, checksums and the like that writers leave beside their files; they are clearly not data.
_MARKER = re.compile(
    r"_(?:SUCCESS|FAILURE|metadata|common_metadata|spark_metadata|temporary|committed_.*|started_.*|delta_log|mv)\Z"
    r"|\.(?:.*\.crc|hive-staging.*|spark-staging.*)\Z"
)
_NUM_SHOWN = 3


def is_glob(path: str) -> bool:
    """True if a path may stand for several paths."""
    return _GLOB.search(path) is not None


def is_partition(name: str) -> bool:
    """True if a folder of this name is a partition folder (`m=2`)."""
    return _PARTITION.match(name) is not None


def folder_of(pattern: str) -> str:
    """Return the folder before a glob's first special character; it must exist."""
    return _GLOB.split(pattern, maxsplit=1)[0].rpartition("/")[0] or "/"


def has_one_depth(pattern: str) -> bool:
    """True if every path that a glob matches has as many segments as the glob: no alternative contains a slash."""
    return all(piece.count("{") == piece.count("}") for piece in pattern.split("/"))


def names_hidden(pattern: str) -> bool:
    """True if a path names files that Spark treats as hidden; a folder of such a name is read."""
    name = pattern.rstrip("/").rpartition("/")[2]
    is_folder = not is_glob(name) and "." not in name[1:]
    is_hidden = name.endswith(_COPYING) or (_HIDDEN.match(name) is not None and not is_partition(name))
    return is_hidden and not is_folder


def is_hidden(name: str) -> bool:
    """True if Spark treats a file or folder of this name as hidden, and it is not a writer's marker."""
    is_hidden = name.endswith(_COPYING) or (name[:1] in ("_", ".") and not is_partition(name))
    return is_hidden and _MARKER.match(name) is None


def divided(pattern: str, paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the files that a path stands for, and those in folders below it that are not partition folders.

    paths : all files below the paths that the glob matches
    """
    depth = len(pattern.rstrip("/").split("/"))
    meant, beside = list[str](), list[str]()
    for path in paths:
        folders = path.split("/")[depth:-1]
        (meant if all(map(is_partition, folders)) else beside).append(path)
    return meant, beside


def folder_columns(pattern: str, paths: Iterable[str]) -> list[str]:
    """Return the columns of which only folders' names have values: `zip` of `zip=01001`, in their order.

    Folders that the path names are left out: they are the same for all files.
    """
    segments = pattern.rstrip("/").split("/")
    fixed = next((at for at, segment in enumerate(segments) if is_glob(segment)), len(segments))
    folders = (folder for path in paths for folder in path.split("/")[fixed:-1] if is_partition(folder))
    return list(dict.fromkeys(unquote(folder.partition("=")[0]) for folder in folders))


def value_of_folder(name: str) -> str:
    """Return the SQL of a folder column's value: text, without the escapes for characters and NULL.

    It raises for a file that is in no such folder. Of several folders it takes the last: the path may lie in others.
    """
    pattern = literal(f"(?s).*/{re.escape(name)}=([^/]*)/")
    raises = f"raise_error({literal(f'no folder {name}= above ')} || _file)"
    value = f"coalesce(nullif(regexp_extract(_file, {pattern}, 1), ''), {raises})"
    return f"nullif(url_decode(replace({value}, '+', '%2B')), '__HIVE_DEFAULT_PARTITION__')"


def partition_folders(pattern: str, paths: Iterable[str]) -> list[str]:
    """Return the partition folders that hold files of a path, sorted."""
    depth = len(pattern.rstrip("/").split("/"))
    return sorted({path.rpartition("/")[0] for path in paths if len(path.split("/")) > depth + 1})


def ignored_text(paths: Sequence[str]) -> str:
    """Return a text that names a few of the files that were passed over, for a log line and a report."""
    shown = ", ".join(sorted(paths)[:_NUM_SHOWN])
    more = len(paths) - _NUM_SHOWN
    return f"ignored: {shown}" + (f" and {more:,} more" if more > 0 else "")
