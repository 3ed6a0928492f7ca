"""A real schema registry on loopback, Apicurio's: it has Confluent's interface. Stopped by its own pid."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError

import pytest

from scripts.java_programs import SMALL, java_program, run_ivy, start
from scripts.ports import free_port
from scripts.server_error import ServerError

VERSION = "2.6.13.Final"  # the newest that runs on Java 17
_PATIENCE_S = 120
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
        words = [java_program(), "-Xmx512m", *SMALL, *settings, "-jar", str(next(self._directory.glob("*-runner.jar")))]
        self._process = start(words, self._directory / "registry.log")
        until = time.monotonic() + _PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                said = (self._directory / "registry.log").read_text()[-800:]
                self.kill()
                raise ServerError(f"the registry did not start: {said}")

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
    """Fetch the program and unpack it."""
    run_ivy(to, _WANTED, f"{to}/[artifact].[ext]")
    archive = to / "apicurio-registry-app.tar.gz"
    with tarfile.open(archive) as packed:
        packed.extractall(to, filter="data")
    archive.unlink()


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    """The one registry of the run; a machine that cannot start it fails here, it does not skip."""
    directory = Path(tempfile.mkdtemp(prefix="mv-registry-"))
    found = None
    try:
        found = Registry(directory)
        yield found
    except ServerError as error:
        pytest.fail(str(error), pytrace=False)
    finally:
        if found is not None:
            found.kill()
        shutil.rmtree(directory)
