"""The limits of SQLite and plain S3: they cannot isolate processes on several hosts, or several drivers.

SQLite's locks work between processes of one machine. On a network file system they do not, and a separate file on each
worker is a separate database. Delta's default log store for S3 orders commits inside one driver only: if two drivers
commit at once, one of them loses its rows, and no fence detects it. The same holds for Delta's log stores for other
file systems: with GCSLogStore on s3a (Hadoop 3.5, a server that stores each file at once) two drivers lost 2 of 50
commits, and 20 of 40 with fs.s3a.performance.flags=create, without an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_mv_provider.exceptions import MainUnsupportedError

_OF_A_NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "beegfs", "afs", "ocfs2"),
        *("gfs2", "glusterfs", "fuse.glusterfs", "fuse.ceph", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse"),
        *("fuse.blobfuse", "fuse.juicefs"),
    }
)
_ON_SEVERAL_HOSTS = frozenset(
    {
        *("CeleryExecutor", "KubernetesExecutor", "CeleryKubernetesExecutor", "LocalKubernetesExecutor"),
        *("EdgeExecutor", "AwsEcsExecutor", "AwsLambdaExecutor", "AwsBatchExecutor"),
    }
)
_FROM_DELTA = ("io.delta.storage.", "org.apache.spark.sql.delta.storage.")
_FOR_SEVERAL = "io.delta.storage.S3DynamoDBLogStore"


def network_file_system(mounts: str, file: str) -> str | None:
    """Return the type of the network file system that a file lies on, or None if it lies on none.

    mounts : the text of /proc/self/mountinfo
    file   : absolute, links resolved
    """
    longest, kind = "", None
    for line in mounts.splitlines():
        found = re.match(r"\S+ \S+ \S+ \S+ (\S+) .*? - (\S+) ", line)
        if found is None:
            continue
        place = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), found[1])
        is_around = file == place or file.startswith(place.rstrip("/") + "/")
        if is_around and len(place) >= len(longest):  # of two mounts at one path, the later one hides the first
            longest, kind = place, found[2]
    return kind if kind in _OF_A_NETWORK else None


def executor_of_several_hosts(executors: str) -> str | None:
    """Return the first of Airflow's executors that can run tasks on other hosts, or None.

    executors : `[core] executor`: names or import paths, with aliases or teams
    """
    return next((name for name in re.findall(r"\w+", executors) if name in _ON_SEVERAL_HOSTS), None)


def check_log_store(main: str, confs: Mapping[str, str | None], *, is_single_driver: bool) -> None:
    """Refuse a main on S3 whose log store cannot order the commits of several drivers.

    confs            : Spark's values of the confs that `log_store_confs` returns
    is_single_driver : the settings state that only one driver ever writes
    raises           : MainUnsupportedError
    """
    named = log_store_confs(main)
    if not named or is_single_driver:
        return
    store = next((found for name in named if (found := confs.get(name))), None)
    is_from_delta = store is None or store.startswith(_FROM_DELTA)
    if is_from_delta and store != _FOR_SEVERAL:
        raise MainUnsupportedError(
            main,
            f"Delta's log store there is {store or 'the default one'}, which supports only one driver.",
            hint=f"Set {named[0]} to one for several, such as {_FOR_SEVERAL}; or declare"
            " with AMV_S3_SINGLE_DRIVER=true that there is only one driver.",
        )


def log_store_confs(main: str) -> tuple[str, ...]:
    """Return the Spark confs that set the log store of a path on S3, by precedence; none for other paths."""
    scheme, found, _ = main.partition("://")
    if not found or scheme not in ("s3", "s3a"):
        return ()
    return (f"spark.delta.logStore.{scheme}.impl", "spark.delta.logStore.class")
