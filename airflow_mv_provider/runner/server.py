"""One Spark Connect server of the user's own, which stays when a command ends and is found by the next one.

    ~/airflow/airflow_mv_server.json   its process, port and token; readable for this user only (AIRFLOW_HOME, if set)
    ~/airflow/airflow_mv_server.log    what it prints

It listens on loopback alone. A client with the token can run code as this user.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_mv_provider.exceptions import EngineError, SettingError
from airflow_mv_provider.runner.settings import Settings, default_home

if TYPE_CHECKING:
    import psutil

_LOOPBACK = "127.0.0.1"
_PATIENCE_S = 300.0  # Ivy may have to fetch Delta's jars
_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server that was started.

    created : when its process was born, in seconds since 1970: a pid alone may be another process's by now
    """

    pid: int
    created: float
    port: int
    token: str
    master: str
    memory: str

    @property
    def address(self) -> str:
        """What clients connect to, without the token."""
        return f"sc://localhost:{self.port}"  # PySpark sends a token without TLS to this name only

    @property
    def remote(self) -> str:
        """What clients connect to, with the token."""
        return f"{self.address}/;token={self.token}"


def log_file() -> Path:
    """Return the file that the server's output is written to."""
    return default_home() / "airflow_mv_server.log"


def running(environ: Mapping[str, str] = os.environ) -> Server | None:
    """Return the server that runs, None if none was started or it has ended."""
    try:
        found = Server(**json.loads(_file(environ).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return found if _process(found) else None


def with_server(settings: Settings, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings with the running server as `spark_remote`, unless AMV_SPARK_REMOTE is set, empty or not."""
    if "AMV_SPARK_REMOTE" in environ or (server := running(environ)) is None:
        return settings
    return replace(settings, spark_remote=server.remote)


def start(master: str, memory: str, confs: Mapping[str, str], waits: Callable[[], None]) -> tuple[Server, bool]:
    """Start the server and wait until it accepts connections; return it, and whether it is new.

    waits  : called once it is known that one has to be started
    cost   : 5 to 15 seconds, and Ivy's download of Delta's jars on a machine that lacks them
    raises : EngineError, if it ends or accepts no connection; DependencyError, when Java is missing
    """
    with _alone():
        if found := running():
            return found, False
        waits()
        from airflow_mv_provider.spark.session import warm_start

        with warm_start().alone_with_ivy():
            return _started(master, memory, confs), True


def stop() -> Server | None:
    """End the server and return it, None if none runs; a refresh on it is interrupted, and resumed by the next one.

    raises : EngineError, if it does not end
    """
    with _alone():
        server = running()
        process = _process(server) if server else None
        if process is not None:
            import psutil

            with suppress(psutil.NoSuchProcess):
                process.terminate()
            if psutil.wait_procs([process], _GRACE_S)[1]:
                process.kill()
                if psutil.wait_procs([process], _GRACE_S)[1]:
                    hint = "See what it waits for (ps, dmesg), then run `amv server stop` again."
                    raise EngineError("amv server", f"process {process.pid} does not end.", hint=hint)
        _file().unlink(missing_ok=True)
        return server


def _file(environ: Mapping[str, str] = os.environ) -> Path:
    return default_home(environ) / "airflow_mv_server.json"


def _started(master: str, memory: str, confs: Mapping[str, str]) -> Server:
    from airflow_mv_provider.spark.connect_server import ConnectServer

    token, port = secrets.token_urlsafe(32), _free_port()
    planned = ConnectServer(_LOOPBACK, port, master, memory, confs)
    pid = _spawn(planned.command(), planned.environment(token))
    try:
        _wait(pid, port)
        server = Server(pid, _created(pid), port, token, master, memory)
        _write(server)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        raise
    return server


@contextmanager
def _alone() -> Iterator[None]:
    """Let one command at a time start or end the server."""
    lock = _file().with_suffix(".lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        opened = lock.open("w")
    except OSError as error:
        problem = f"{lock.parent} cannot be written: {error.strerror}."
        raise SettingError("amv server", problem, hint="Set AIRFLOW_HOME to a directory of yours.") from error
    with opened as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _spawn(command: list[str], environment: Mapping[str, str]) -> int:
    """Start a process that outlives this one and its terminal, and return its pid."""
    log = os.open(log_file(), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    try:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ]
        return os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True)
    finally:
        os.close(log)


def _wait(pid: int, port: int) -> None:
    until = time.monotonic() + _PATIENCE_S
    while True:
        has_ended = os.waitpid(pid, os.WNOHANG) != (0, 0)
        if has_ended or time.monotonic() > until:
            from airflow_mv_provider.spark.session import informative

            why = informative(log_file().read_text(encoding="utf-8", errors="replace"))
            raise EngineError("amv server", f"the server did not start: {why}.", hint=f"Its whole output: {log_file()}")
        with suppress(OSError):
            socket.create_connection((_LOOPBACK, port), 1).close()
            return
        time.sleep(0.1)


def _write(server: Server) -> None:
    partial = _file().with_suffix(".partial")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600)
    partial.write_text(json.dumps(asdict(server)), encoding="utf-8")
    partial.replace(_file())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _created(pid: int) -> float:
    import psutil

    return float(psutil.Process(pid).create_time())


def _process(server: Server) -> psutil.Process | None:
    import psutil

    try:
        process = psutil.Process(server.pid)
        is_it = process.create_time() == server.created and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return process if is_it else None
