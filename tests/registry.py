"""A real schema registry on loopback, Apicurio's: it has Confluent's interface. Stopped by its own pid."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError

import pyspark
import pytest

from airflow_mv_provider.spark.warm_start import java
from tests.ports import free_port

VERSION = "2.6.13.Final"  # the newest that runs on Java 17
_PATIENCE_S = 120
_MEMORY = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# The archive with the whole program, and none of the libraries that it is built from.
_WANTED = f"""
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tests" module="registry"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


class Registry:
    """One registry, which keeps its schemas in memory: `url` is that of Confluent's interface."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"
        _fetch(directory)
        self.start()

    def start(self) -> None:
        """Start it; after `kill` it is at the same address and has forgotten every schema."""
        settings = [f"-Dquarkus.http.port={self._port}", "-Dquarkus.http.host=127.0.0.1"]
        words = [_java_program(), *_MEMORY, *settings, "-jar", str(next(self._directory.glob("*-runner.jar")))]
        with open(self._directory / "registry.log", "ab") as log:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + _PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                said = (self._directory / "registry.log").read_text()[-800:]
                self.kill()
                pytest.fail(f"the registry did not start: {said}", pytrace=False)

    def kill(self) -> None:
        """End it by its own pid, as SIGKILL does."""
        self._process.kill()
        self._process.wait(_PATIENCE_S)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=1) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


def _fetch(to: Path) -> None:
    """Fetch the program by Spark's own Ivy, which keeps it in its cache, and unpack it."""
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    (to / "ivy.xml").write_text(_WANTED)
    wanted = ["-ivy", str(to / "ivy.xml"), "-retrieve", f"{to}/[artifact].[ext]"]
    words = [_java_program(), *_MEMORY, "-jar", str(ivy), *wanted]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=to)
    archive = to / "apicurio-registry-app.tar.gz"
    if done.returncode or not archive.exists():
        said = next((line for line in done.stdout.splitlines() if "not found" in line or "Server access" in line), "")
        pytest.fail(
            f"the registry could not be fetched from Maven: {said.strip() or done.stdout[-300:]}", pytrace=False
        )
    with tarfile.open(archive) as packed:
        packed.extractall(to, filter="data")
    archive.unlink()


def _java_program() -> str:
    found = java()
    if found is None:
        pytest.fail("java is not found: run `make setup`.", pytrace=False)
    return found


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    """The one registry of the run; a machine that cannot start it fails here, it does not skip."""
    directory = Path(tempfile.mkdtemp(prefix="mv-registry-"))
    found = None
    try:
        found = Registry(directory)
        yield found
    finally:
        if found is not None:
            found.kill()
        shutil.rmtree(directory)
