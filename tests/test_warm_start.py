"""What a start of Spark leaves for the next: jars that need no Ivy, and an archive of classes that the JVM maps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from airflow_mv_provider.spark.session import collector
from airflow_mv_provider.spark.warm_start import WarmStart

PACKAGES = "io.delta:delta-spark_4.2_2.13:4.4.0"
MAPS_ITS_ARCHIVE = """
from pathlib import Path
from airflow_mv_provider.spark.session import local_session, warm_start
session = local_session()
session.sql("SELECT 1").collect()
pid = session._jvm.java.lang.ProcessHandle.current().pid()
is_mapped = str(warm_start().archive) in Path(f"/proc/{pid}/maps").read_text()
print(is_mapped, session.conf.get("spark.jars.packages", "none"))
"""


STARTS = """
import sys
from airflow_mv_provider.spark.session import local_session
print(local_session(spark_jars_ivy=sys.argv[1]).sql("SELECT 1").collect()[0][0])
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return lambda: WarmStart.of(PACKAGES)


@pytest.fixture
def jars(tmp_path):
    files = [tmp_path / name for name in ("delta.jar", "with space.jar")]
    for file in files:
        file.touch()
    return files


def test_jars_are_remembered_while_all_of_them_exist(start, jars):
    assert start().confs() == {"spark.jars.packages": PACKAGES}

    start().remember(",".join(file.as_uri() for file in jars))

    assert start().confs() == {"spark.jars": ",".join(file.as_uri() for file in jars)}
    jars[1].unlink()
    assert start().confs() == {"spark.jars.packages": PACKAGES}
    jars[1].touch()
    start().remember(jars[0].as_uri())
    assert start().confs()["spark.jars"].count(",") == 1, "what is known stays"


@pytest.mark.parametrize("jar", ["", "hdfs://host/delta.jar", "file:///no/such.jar", "spark://host:1/jars/delta.jar"])
def test_jars_that_are_no_files_of_this_machine_are_not_remembered(start, jars, jar):
    start().remember(f"{jars[0].as_uri()},{jar}")

    assert start().confs() == {"spark.jars.packages": PACKAGES}


@pytest.mark.parametrize("change", ["packages", "defaults", "arguments", "java"])
def test_whatever_decides_what_is_loaded_begins_anew(start, jars, change, tmp_path, monkeypatch):
    start().remember(jars[0].as_uri())
    before = start()

    if change == "defaults":
        (tmp_path / "spark-defaults.conf").write_text("spark.jars /of/mine.jar\n")
    elif change == "arguments":
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars /of/mine.jar pyspark-shell")
    elif change == "java":
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/java").touch(mode=0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    after = WarmStart.of(f"{PACKAGES},org.apache.hadoop:hadoop-aws:3.4.2") if change == "packages" else start()

    assert after.key != before.key
    assert after.confs() == {"spark.jars.packages": after.packages}


def test_archive_of_jars_that_were_installed_anew_is_no_longer_used_and_removed(start, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    jar = tmp_path / "spark/jars/spark-core.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"of the first installation")
    before = start()
    before.directory.mkdir(parents=True)
    of_another_spark = before.directory / "0123456789abcdef-0123456789abcdef.jsa"
    for archive in (before.archive, of_another_spark):
        archive.touch()

    os.utime(jar, ns=(0, jar.stat().st_mtime_ns + 1))  # Java ignores the archive then
    assert start().java_options() == ""
    start().archive.touch()
    start().remove_former()

    assert set(before.directory.iterdir()) == {start().archive, of_another_spark}


def test_cache_that_cannot_be_written_or_read_changes_nothing(start, jars, tmp_path):
    (tmp_path / "cache").write_text("a file where a directory should be")
    start().remember(jars[0].as_uri())
    assert start().confs() == {"spark.jars.packages": PACKAGES}

    (tmp_path / "cache").unlink()
    start().directory.mkdir(parents=True)
    (start().directory / f"{start().key}.jars").write_bytes(b"\xff\xfe\x00")
    assert start().confs() == {"spark.jars.packages": PACKAGES}


def test_one_process_at_a_time_asks_ivy_until_the_jars_are_known(start, jars):
    asks, knows, goes_on = threading.Event(), threading.Event(), threading.Event()
    found = []

    def first():
        with start().alone_with_ivy():
            asks.set()
            knows.wait(10)
            start().remember(jars[0].as_uri())
            found.append("first")

    def second():
        asks.wait(10)
        with start().alone_with_ivy():
            found.append(start().confs())
            goes_on.wait(10)

    both = [threading.Thread(target=each) for each in (first, second)]
    for thread in both:
        thread.start()
    asks.wait(10)
    with start().alone_with_ivy(patience_s=0.2):
        assert found == [], "it goes on beside the first one, which takes too long"
    knows.set()
    both[0].join(10)
    with start().alone_with_ivy():
        assert start().confs() == {"spark.jars": jars[0].as_uri()}, "nothing is waited for any more"
    goes_on.set()
    both[1].join(10)
    assert found == ["first", {"spark.jars": jars[0].as_uri()}]


@pytest.mark.slow
@pytest.mark.in_test_all
def test_two_first_starts_at_once_share_what_one_of_them_fetches(tmp_path):
    command = [sys.executable, "-c", STARTS, str(tmp_path / "ivy")]
    environment = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "AMV_SPARK_MASTER": "local[1]"}
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]

    said = [process.communicate(timeout=300)[0] for process in processes]

    assert said == ["1\n", "1\n"]


def test_user_without_a_home_has_no_cache(start, jars, monkeypatch):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    start().remember(jars[0].as_uri())

    assert start().confs() == {"spark.jars.packages": PACKAGES}
    assert not start().archive.exists()


def test_home_of_another_user_is_no_cache(start, jars, monkeypatch):
    start().remember(jars[0].as_uri())
    start().archive.touch()

    def forbidden(path: object, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "stat", forbidden)  # root may look everywhere

    assert (start().confs(), start().java_options()) == ({"spark.jars.packages": PACKAGES}, "")


def test_archive_is_an_option_only_where_there_is_one(start):
    assert (start().java_options(), start().is_complete) == ("", False)

    start().archive.parent.mkdir(parents=True)
    start().archive.touch()

    assert start().java_options() == f'"-XX:SharedArchiveFile={start().archive}"'


@pytest.mark.slow
@pytest.mark.in_test_all
def test_machine_is_warmed_up_once_and_the_next_jvm_maps_the_archive(tmp_path):
    cache = tmp_path / "a cache"
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "AMV_SPARK_MASTER": "local[2]"}
    amv = [str(Path(sys.executable).parent / "amv"), "warm-up", "--json"]

    def done(words: list[str]) -> str:
        return subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout

    assert done([sys.executable, "-c", MAPS_ITS_ARCHIVE]).split() == ["False", "io.delta:delta-spark_4.2_2.13:4.4.0"]
    first, second = (json.loads(done(amv)) for _ in range(2))
    assert (first["new"], second["new"], first["archive"]) == (True, False, second["archive"])
    assert first["bytes"] == Path(first["archive"]).stat().st_size
    assert sorted(file.suffix for file in cache.glob("*/*")) == [".jars", ".jsa", ".lock"], (
        "nothing is left half written"
    )
    assert done([sys.executable, "-c", MAPS_ITS_ARCHIVE]).split() == ["True", "none"]


def test_server_needs_no_warm_up():
    amv = [str(Path(sys.executable).parent / "amv"), "warm-up"]
    environment = os.environ | {"AMV_SPARK_REMOTE": "sc://127.0.0.1:15002"}

    done = subprocess.run(amv, env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert "commands use a Spark Connect server" in done.stderr


def test_the_environments_garbage_collector_is_not_contradicted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    assert collector() == "-XX:+UseParallelGC"
    assert collector("-Xmx1g -XX:+UseSerialGC") == ""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseZGC -Xmx1g")
    assert collector() == ""
