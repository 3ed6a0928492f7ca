"""What is said of a Spark Connect server that cannot be used."""

from __future__ import annotations

from airflow_mv_provider.spark.causes.connect import of_refusal

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
