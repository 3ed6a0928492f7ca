"""How a schema registry is reached, and what it means if it does not answer: named, and without a secret."""

from __future__ import annotations

import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from airflow_mv_provider.exceptions import (
    ConnectionUnknownError,
    SourceDeniedError,
    SourceUnavailableError,
    UnsafeLocationError,
)
from airflow_mv_provider.sources.credentials import Credentials, confined_to
from airflow_mv_provider.sources.kafka.schema_registry import registry_of, schemas_of
from scripts.ports import free_port

SECRET = "c4n4ry/p4ss w@rd"
URL, LOGIN, CA = (f"schema.registry.{name}" for name in ("url", "basic.auth.user.info", "ssl.ca.location"))


def credentials(**extra: str) -> Credentials:
    return Credentials("k", "kafka", options={"bootstrap.servers": "b1:9092"} | extra)


def test_address_and_login_are_in_the_extra_of_the_topics_connection():
    extra = {URL: "https://r1:8081, https://r2:8081/path/", LOGIN: f"me:{SECRET}", CA: "/ca.pem"}
    found = registry_of(credentials(**extra))

    assert found.client == {
        "url": "https://r1:8081,https://r2:8081/path/",
        "basic.auth.user.info": f"me:{SECRET}",
        "ssl.ca.location": "/ca.pem",
    }
    assert SECRET not in repr(found)
    assert {f"me:{SECRET}", SECRET} <= set(credentials(**extra).secrets)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({}, "names no schema registry: give schema.registry.url"),
        ({URL: " , "}, "names no schema registry"),
        ({URL: "r1:8081"}, "not http://host:port"),
        ({URL: "mock://x"}, "not http://host:port"),
        ({URL: "http://"}, "not http://host:port"),
        ({URL: "http://me:c4n4ry@r1"}, "has a login"),
        ({URL: "http://r1", LOGIN: SECRET}, "is not user:password"),
        ({URL: "http://r1", "schema.registry.ssl.key.password": SECRET}, "ssl.key.password in its extra is not known"),
    ],
)
def test_connection_that_is_not_understood_is_refused(extra, words):
    with pytest.raises(ConnectionUnknownError, match=words) as caught:
        registry_of(credentials(**extra))

    assert "c4n4ry" not in str(caught.value)


def test_registry_is_confined_like_brokers():
    def find(_: str) -> Credentials:
        return credentials(**{URL: "http://r1.example:8081,http://evil.test"})

    confined_to(["b1", "*.example", "evil.test"], find)("k")
    with pytest.raises(UnsafeLocationError, match=r"evil\.test"):
        confined_to(["b1", "*.example"], find)("k")


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server at the edge that gives one answer; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (401, b'{"error_code": 401, "message": "%s"}' % SECRET.encode(), SourceDeniedError, "refuses the login"),
        (403, b"<html>", SourceDeniedError, "refuses the login"),
        (404, b"<html>no registry lives here", SourceUnavailableError, "HTTP 404"),
        (500, b"%s" % SECRET.encode(), SourceUnavailableError, "HTTP 500"),
        (200, b"no json", SourceUnavailableError, "does not answer: JSONDecodeError"),
        (200, b"[]", SourceUnavailableError, "does not answer"),
    ],
)
def test_answer_that_is_none_is_named(status, body, error, words):
    with answering(status, body) as url, pytest.raises(error, match=words) as caught:
        schemas_of(registry_of(credentials(**{URL: url, LOGIN: f"me:{SECRET}"})), [7], 5)

    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert url in str(caught.value)


def test_schema_of_another_kind_or_with_references_is_none():
    with answering(200, b'{"schemaType": "JSON", "schema": "{}"}') as url:
        assert schemas_of(registry_of(credentials(**{URL: url})), [7], 5) == {7: None}
    with answering(200, b"{}") as url:
        assert schemas_of(registry_of(credentials(**{URL: url})), [7], 5) == {7: None}
    with answering(200, b'{"schema": "\\"int\\"", "references": [{"name": "R", "subject": "s", "version": 1}]}') as url:
        assert schemas_of(registry_of(credentials(**{URL: url})), [7], 5) == {7: None}
    with answering(404, b'{"error_code": 40403, "message": "Schema not found"}') as url:
        assert schemas_of(registry_of(credentials(**{URL: url})), [7], 5) == {7: None}
    with answering(200, b'{"schema": "\\"int\\""}') as url:
        assert schemas_of(registry_of(credentials(**{URL: f"http://127.0.0.1:{free_port()},{url}"})), [7, 7, 8], 5) == {
            7: '"int"',
            8: '"int"',
        }


def test_registry_that_is_away_or_silent_is_named_in_time():
    with pytest.raises(SourceUnavailableError, match="does not answer: ConnectError"):
        schemas_of(registry_of(credentials(**{URL: f"http://127.0.0.1:{free_port()}"})), [7], 5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SourceUnavailableError, match="does not answer: ReadTimeout"):
            schemas_of(registry_of(credentials(**{URL: url})), [7], 1)


def test_authority_that_cannot_be_read_is_named():
    found = registry_of(credentials(**{URL: "https://127.0.0.1:1", CA: "/nowhere/ca.pem"}))

    with pytest.raises(SourceUnavailableError, match="FileNotFoundError"):
        schemas_of(found, [7], 5)
