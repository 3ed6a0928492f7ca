"""What one start of Spark leaves for the next ones on this machine: where its jars lie, and the classes that it loads.

    ~/.cache/airflow-mv/<key>.jars   the files to which Ivy resolved `spark.jars.packages`, one in each line
    ~/.cache/airflow-mv/<key>.jsa    the JVM's own archive of loaded classes (class data sharing), about 200 MB
    ~/.cache/airflow-mv/ivy.lock     held by the process whose start asks Ivy

Every start that asked Ivy writes the first; with it, later starts skip Ivy. Only `amv warm-up` writes the second,
because a JVM that records takes a third longer. The key covers everything that decides what is loaded: Java ignores an
archive that does not fit its version or its jars, by their order, sizes and times.

source : ten rows, cold, on two cores: 20 s; 18 s with the first; 14 s with both
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyspark

_OTHERS_TAKE_S = 300.0  # Ivy may have to fetch everything
_LOOKS_EVERY_S = 0.1


def java() -> str | None:
    """Return the path of the Java that Spark will start, None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(f"{home}/bin/java" if home else "java")


@dataclass(frozen=True, slots=True)
class WarmStart:
    """What earlier starts with the same packages, Spark, Java and Spark defaults have left.

    packages : Maven coordinates, as `spark.jars.packages` takes them
    """

    packages: str
    directory: Path
    key: str

    @classmethod
    def of(cls, packages: str) -> WarmStart:
        """Return what there is for these packages in the user's cache directory."""
        return cls(packages, _cache() / "airflow-mv", _key(packages))

    @property
    def archive(self) -> Path:
        """The archive of classes, which may not exist."""
        return self.directory / f"{self.key}.jsa"

    @property
    def is_complete(self) -> bool:
        """True if the next start needs neither Ivy nor to load classes one by one."""
        return bool(self._jars()) and os.path.isfile(self.archive)

    @contextmanager
    def alone_with_ivy(self, patience_s: float = _OTHERS_TAKE_S) -> Iterator[None]:
        """Let one process of this user at a time start Spark while its jars are not known; others wait for its end.

        Ivy's cache is not safe for two: downloads at the same time leave files of 0 bytes, and both starts fail. Where
        the jars are known nothing is waited for. Where the cache cannot be written, or another process takes longer
        than `patience_s`, the start goes on beside it.
        """
        with ExitStack() as held:
            if not self._jars():
                self._wait_for_ivy(held, time.monotonic() + patience_s)
                if self._jars():
                    held.close()  # its former holder has left them
            yield

    def confs(self) -> dict[str, str]:
        """Return the conf that brings Delta's jars: as files where they are known, else as packages."""
        jars = self._jars()
        return {"spark.jars": ",".join(jars)} if jars else {"spark.jars.packages": self.packages}

    def java_options(self) -> str:
        """Return the JVM options that use the archive; nothing without one."""
        return f'"-XX:SharedArchiveFile={self.archive}"' if os.path.isfile(self.archive) else ""

    def remove_former(self) -> None:
        """Remove what this Spark has left under other keys, 200 MB each: of jars that are no longer the same files."""
        for file in self.directory.glob(f"{self.key.partition('-')[0]}-*"):
            if not file.name.startswith(f"{self.key}."):
                with suppress(OSError):
                    file.unlink()

    def remember(self, jars: str) -> None:
        """Keep what Spark has resolved the packages to; does nothing where the cache cannot be written.

        jars : the value of `spark.jars` once Spark has started
        """
        found = jars.split(",")
        if self._jars() or not all(_exists(jar) for jar in found):
            return
        with suppress(OSError):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial = self.directory / f"{self.key}.{os.getpid()}.partial"
            partial.write_text("\n".join(found), encoding="utf-8")
            partial.replace(self.directory / f"{self.key}.jars")

    def _wait_for_ivy(self, held: ExitStack, deadline: float) -> None:
        with suppress(OSError):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = held.enter_context((self.directory / "ivy.lock").open("w"))
            while time.monotonic() < deadline:
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                time.sleep(_LOOKS_EVERY_S)

    def _jars(self) -> list[str]:
        try:
            found = (self.directory / f"{self.key}.jars").read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError):
            return []
        return found if all(_exists(jar) for jar in found) else []


def _cache() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a container's user without a name, who has no home
        return Path(os.devnull)  # nothing can be below it


def _key(packages: str) -> str:
    at, home = java(), spark_home()
    facts = [packages, pyspark.__version__, *_files(home / "jars"), os.environ.get("PYSPARK_SUBMIT_ARGS", "")]
    with suppress(OSError, ValueError):
        facts.append(_defaults().read_text(encoding="utf-8"))
    with suppress(OSError):
        binary = Path(at or "").resolve(strict=True)
        facts += [str(binary), str(binary.stat().st_mtime_ns)]
    return f"{_digest([str(home)])}-{_digest(facts)}"


def is_default(name: str) -> bool:
    """True if this machine's spark-defaults.conf sets a conf."""
    with suppress(OSError, ValueError):
        lines = _defaults().read_text(encoding="utf-8").splitlines()
        return any(re.match(rf"\s*{re.escape(name)}[\s=:]", line) for line in lines)
    return False


def spark_home() -> Path:
    """Return where Spark is installed: SPARK_HOME, or what PySpark brings."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _defaults() -> Path:
    return Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf") / "spark-defaults.conf"


def _files(directory: Path) -> list[str]:
    """Return what Java compares of the files there, in the order in which it will find them."""
    try:
        with os.scandir(directory) as found:
            return [f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in found]
    except OSError:
        return []


def _digest(facts: list[str]) -> str:
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def _exists(jar: str) -> bool:
    # Unlike Path.is_file, os.path.isfile is False where a directory above forbids to look, as a foreign HOME does.
    parts = urlsplit(jar)
    return parts.scheme == "file" and os.path.isfile(unquote(parts.path))
