"""What is said of a Spark Connect server that cannot be used."""

from __future__ import annotations

import sys

import pytest

from airflow_mv_provider.exceptions import DependencyError
from airflow_mv_provider.spark.causes.connect import of_refusal
from airflow_mv_provider.spark.packages import delta_packages
from airflow_mv_provider.spark.session import open_session

# What a client with a token said of a server without TLS at sc://127.0.0.1.
WITH_TLS = """<_InactiveRpcError of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:30455: Tls handshake failed \
(TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:100000f7:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER: Invalid \
certificate verification context: OK"
\tdebug_error_string = "UNAVAILABLE:failed to connect to all addresses"
>"""


def test_what_grpc_reports_is_named_and_not_its_first_line():
    problem, hint = of_refusal(WITH_TLS)

    assert problem.startswith("it does not speak TLS (failed to connect to all addresses; last error: UNKNOWN: ipv4")
    assert "\n" not in problem
    assert "sc://localhost" in (hint or "")


def test_any_other_error_is_its_first_line():
    assert of_refusal("[SOMETHING] it is full\nand more") == ("[SOMETHING] it is full", None)


def test_jar_is_that_of_the_servers_spark():
    here = delta_packages()

    assert ":delta-spark_4.0_2.13:" in delta_packages("4.0.2-amzn-0")
    assert delta_packages("4.0.2").rpartition(":")[2] == here.rpartition(":")[2]
    assert delta_packages("of a name") == here


def test_packages_of_two_versions_are_found_by_what_was_installed(tmp_path, monkeypatch):
    """Which files are there says nothing: they are those of the package that was installed last."""
    for name, version in {"pyspark": "4.1.1", "pyspark_client": "4.0.1"}.items():
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        (tmp_path / f"{name}-{version}.dist-info/METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    with pytest.raises(DependencyError, match=r"pyspark 4\.1\.1 and pyspark-client 4\.0\.1 are installed") as caught:
        open_session("sc://127.0.0.1:1")

    assert "Install the same version of both, or only one." in caught.value.advice
    assert '"pyspark[connect]==4.1.1" "pyspark-client==4.1.1"' in caught.value.advice
