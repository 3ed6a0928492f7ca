"""A real server of the S3 protocol on loopback, over a directory: versitygw; `make object-store` builds it with Go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector, S3FileSystem

from scripts.ports import free_port
from tests.waiting import accepts, wait_for_server

_PATIENCE_S = 60
_BUCKET, _USER, _PASSWORD, _REGION = "lake", "amv", "c4n4ry-s3cr3t", "us-east-1"
# hadoop-aws wants one jar of all of Amazon's services, 600 MB; S3 needs three of its parts.
_SDK = "2.57.8"
JARS = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    *(f"software.amazon.awssdk:{name}:{_SDK}" for name in ("s3", "s3-transfer-manager", "apache-client")),
)


class ObjectStore:
    """A bucket of one server; `root` is where a warehouse can lie."""

    root = f"s3a://{_BUCKET}/wh"

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self._files = S3FileSystem(
            access_key=_USER, secret_key=_PASSWORD, region=_REGION, scheme="http", endpoint_override=f"127.0.0.1:{port}"
        )

    @property
    def confs(self) -> dict[str, str]:
        """What Spark needs to reach it."""
        return {
            "spark.jars.excludes": "software.amazon.awssdk:bundle",
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": _REGION,
            "spark.hadoop.fs.s3a.access.key": _USER,
            "spark.hadoop.fs.s3a.secret.key": _PASSWORD,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }

    @property
    def options(self) -> dict[str, str]:
        """What delta-rs needs to reach it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": _REGION,
            "AWS_ACCESS_KEY_ID": _USER,
            "AWS_SECRET_ACCESS_KEY": _PASSWORD,
            "AWS_ALLOW_HTTP": "true",
        }

    def write(self, path: str, text: str) -> None:
        """Put one file; `path` is below the root."""
        with self._files.open_output_stream(f"{_BUCKET}/wh/{path}") as file:
            file.write(text.encode())

    def names(self, path: str) -> list[str]:
        """The files below a path, which is below the root."""
        start = f"{_BUCKET}/wh/"
        found = self._files.get_file_info(FileSelector(start + path, recursive=True, allow_not_found=True))
        return sorted(each.path.removeprefix(start) for each in found if each.is_file)


@contextmanager
def served(directory: Path) -> Iterator[ObjectStore]:
    """Run a server over an empty directory, and end it by its own pid."""
    program = shutil.which("versitygw", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.fail("versitygw is missing: `make object-store` builds it, with Go 1.25 or newer.", pytrace=False)
    (directory / _BUCKET).mkdir(parents=True)
    port, log = free_port(), directory.with_name(f"{directory.name}.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "--quiet", "--port", f"127.0.0.1:{port}", "posix", directory],
            env=os.environ | {"ROOT_ACCESS_KEY": _USER, "ROOT_SECRET_KEY": _PASSWORD},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for_server(lambda: accepts(port), [process], _PATIENCE_S, lambda: log.read_text()[-1000:])
        yield ObjectStore(port)
    finally:
        process.kill()
        process.wait()
