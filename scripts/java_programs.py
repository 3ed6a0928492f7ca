"""Programs of Java that Maven has: their jars by Spark's own Ivy, and the words that start them on loopback."""

from __future__ import annotations

import os
import subprocess  # nosec B404  # to run Java, without a shell
from collections.abc import Sequence
from pathlib import Path

import pyspark

from airflow_mv_provider.spark.warm_start import java
from scripts.server_error import ServerError

SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that does little: it starts sooner and needs less."""
_QUIET = """
status = error
appender.file.type = Console
appender.file.name = out
rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
"""


def fetch(to: Path, *wanted: str) -> None:
    """Fetch artifacts with what they need into a directory by Spark's own Ivy, which keeps them in its cache.

    wanted : group:name:version
    raises : ServerError
    """
    needs = "".join(
        f'<dependency org="{group}" name="{name}" rev="{version}" conf="default"/>'
        for group, name, version in (each.split(":") for each in wanted)
    )
    described = f'<info organisation="servers" module="{to.name}"/><dependencies>{needs}</dependencies>'
    to.mkdir(parents=True, exist_ok=True)
    run_ivy(to, f'<ivy-module version="2.0">{described}</ivy-module>', f"{to}/[artifact]-[revision].[ext]")
    names = [each.split(":")[1] for each in wanted]
    if missing := [name for name in names if not any(to.glob(f"{name}-*.jar"))]:
        raise ServerError(f"Ivy has not brought {', '.join(missing)}.")


def run_ivy(to: Path, module: str, pattern: str) -> None:
    """Let Spark's own Ivy retrieve what a module description names.

    raises : ServerError
    """
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    (to / "ivy.xml").write_text(module, encoding="utf-8")
    words = [java_program(), "-Xmx384m", *SMALL, "-jar", str(ivy), "-ivy", str(to / "ivy.xml"), "-retrieve", pattern]
    done = subprocess.run(  # nosec B603  # our own words alone
        words, capture_output=True, text=True, check=False, cwd=to, env=environment()
    )
    if done.returncode:
        telling = [line for line in done.stdout.splitlines() if "not found" in line or "Server access" in line]
        raise ServerError(f"Maven's jars could not be fetched: {(telling or [done.stdout[-300:]])[0].strip()}")


def class_words(directory: Path, memory: str, *, level: str = "error") -> list[str]:
    """Return the words to put before a class and its arguments; its jars lie in `lib` of the directory.

    level : what it logs, to stdout
    """
    settings = directory / "log4j2.properties"
    settings.write_text(_QUIET.format(level=level), encoding="utf-8")
    options = [f"-Xmx{memory}", *SMALL, f"-Dlog4j2.configurationFile={settings}"]
    return [java_program(), *options, "-cp", f"{directory / 'lib'}/*"]


def start(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program; what it prints is appended to a file."""
    with log.open("ab") as out:
        return subprocess.Popen(  # nosec B603  # our own words alone
            list(words), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment()
        )


def java_program() -> str:
    """Return the path of Java.

    raises : ServerError
    """
    found = java()
    if found is None:
        raise ServerError("java is not found: run `make setup`.")
    return found


def environment() -> dict[str, str]:
    """Return our environment without what would add to a JVM's options and classes."""
    return {name: value for name, value in os.environ.items() if name not in ("JDK_JAVA_OPTIONS", "CLASSPATH")}
