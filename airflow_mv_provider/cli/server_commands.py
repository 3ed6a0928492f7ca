"""`amv server`: a Spark Connect server that later commands find by themselves."""

from __future__ import annotations

import os
from typing import Any

import click

from airflow_mv_provider.cli.answer import aside
from airflow_mv_provider.cli.answering import Answer, answering
from airflow_mv_provider.exceptions import DependencyError
from airflow_mv_provider.runner import server as one
from airflow_mv_provider.runner.settings import Settings


@click.group()
def server() -> None:
    """Keep Spark running between commands: a refresh then starts in seconds.

    Later commands of this user find the server by themselves, unless AMV_SPARK_REMOTE is set.
    """


def _confs(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for name, is_there, _ in pairs:
        if not is_there or not name:
            raise click.BadParameter("write NAME=VALUE.")
    return {name: value for name, _, value in pairs}


def _spark_options(function: Any) -> Any:
    for option in (
        click.option("--conf", "confs", metavar="NAME=VALUE", multiple=True, callback=_confs,
                     help="A further Spark conf. May be repeated."),
        click.option("--memory", metavar="SIZE", default=lambda: os.environ.get("AMV_DRIVER_MEMORY") or "2g",
                     help="Memory of its JVM (or AMV_DRIVER_MEMORY; default: 2g)."),
        click.option("--master", metavar="URL", default=lambda: os.environ.get("AMV_SPARK_MASTER") or "local[*]",
                     help="Spark master (or AMV_SPARK_MASTER; default: local[*])."),
    ):  # fmt: skip
        function = option(function)
    return function


@server.command()
@_spark_options
@answering
def start(settings: Settings, *, master: str, memory: str, confs: dict[str, str]) -> Answer:
    """Start the server and wait until it accepts connections."""
    found, is_new = one.start(master, memory, confs, lambda: aside("amv: Starting Spark…"))
    text = "Started" if is_new else "Nothing to do: there is"
    return Answer(
        _document(found) | {"new": is_new}, f"{text} a server, {found.master}, {found.memory}: process {found.pid}."
    )


@server.command()
@answering
def stop(settings: Settings) -> Answer:
    """End the server. A refresh that runs on it is interrupted; the next one resumes it."""
    found = one.stop()
    return Answer(_document(found), f"Ended process {found.pid}." if found else "Nothing to do: no server runs.")


@server.command()
@answering
def status(settings: Settings) -> Answer:
    """Print whether a server runs, and where; exit code 0 either way."""
    found = one.running()
    if found is None:
        return Answer(_document(None), "No server runs: each command starts Spark itself. Start one: amv server start")
    text = f"A server runs, {found.master}, {found.memory}: process {found.pid}, {found.address}."
    if "AMV_SPARK_REMOTE" in os.environ:
        text += "\nCommands do not use it, because AMV_SPARK_REMOTE is set."
    return Answer(_document(found), text)


@server.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=15002, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on.")
@_spark_options
@answering
def run(settings: Settings, *, host: str, port: int, master: str, memory: str, confs: dict[str, str]) -> Answer:
    """Run a server in the foreground, for a container or a service manager. Later commands do not look for it.

    Anyone who can reach the port can run code, unless SPARK_CONNECT_AUTHENTICATE_TOKEN is set here and for the clients.
    PySpark sends a token without TLS to localhost only.
    """
    from airflow_mv_provider.spark.connect_server import ConnectServer

    planned = ConnectServer(host, port, master, memory, confs)
    command = planned.command()
    try:
        os.execve(command[0], command, planned.environment())  # nosec B606  # PySpark's spark-submit, without a shell
    except OSError as error:
        raise DependencyError("amv server", f"{command[0]} cannot be started: {error.strerror}.") from error


def _document(found: one.Server | None) -> dict[str, Any]:
    if found is None:
        return {"server": None}
    about = {"pid": found.pid, "address": found.address, "master": found.master, "memory": found.memory}
    return {"server": about | {"log": str(one.log_file())}}
