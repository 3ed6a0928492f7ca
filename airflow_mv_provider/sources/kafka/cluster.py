"""How a connection describes a cluster, for the two clients that need it: librdkafka's, and Java's inside Spark.

The connection is Airflow's of type kafka: its `extra` has librdkafka's own names (`bootstrap.servers`,
`security.protocol`, `sasl.username`, ...). Host, port, login and password count as well. Names that concern security
and are not known here are refused: to leave one out could mean less of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_mv_provider.exceptions import ConnectionUnknownError
from airflow_mv_provider.sources.credentials import Credentials

SECRET_OPTIONS = ("kafka.sasl.jaas.config",)
"""Spark's options that contain a password."""
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_KNOWN = frozenset(
    {
        *("security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"),
        "ssl.ca.location",
    }
)
_OF_SECURITY = re.compile(r"(security|sasl|ssl|enable\.sasl|enable\.ssl|oauth|https)[._]", re.IGNORECASE)
_TYPE = "kafka"


@dataclass(frozen=True, slots=True)
class Cluster:
    """How one cluster is reached.

    servers : host:port, separated by commas
    client  : settings of librdkafka, which may contain a password
    spark   : options of Spark's reader, which may contain one too
    """

    servers: str
    client: Mapping[str, str] = field(repr=False)
    spark: Mapping[str, str] = field(repr=False)


def cluster_of(credentials: Credentials) -> Cluster:
    """Return how the cluster of a connection is reached.

    raises : ConnectionUnknownError, whose message contains no value of the connection but the names of protocols
    """
    options = credentials.options
    if credentials.kind != _TYPE:
        raise _wrong(credentials, f"the connection is of type {credentials.kind!r}; a topic's is {_TYPE}.")
    if unknown := sorted(name for name in options if _OF_SECURITY.match(name) and name not in _KNOWN):
        raise _wrong(
            credentials, f"{unknown[0][:60]!r} in its extra is not known: known are {', '.join(sorted(_KNOWN))}."
        )
    servers = servers_of(credentials)
    if not servers:
        raise _wrong(
            credentials, "the connection names no broker: give bootstrap.servers in its extra, or host and port."
        )
    user = options.get("sasl.username") or credentials.user
    password = options.get("sasl.password") or credentials.password
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise _wrong(credentials, f"security.protocol is not one of {', '.join(_PROTOCOLS)}.")
    is_login = protocol.startswith("SASL_")
    if is_login != bool(user or password):
        problem = (
            "the connection has a login, and no security.protocol with SASL_: SASL_SSL, or SASL_PLAINTEXT without"
            " encryption."
        )
        raise _wrong(credentials, "this security.protocol needs a login and a password." if is_login else problem)
    client = {"bootstrap.servers": servers, "security.protocol": protocol}
    spark = {"kafka.bootstrap.servers": servers, "kafka.security.protocol": protocol}
    if is_login:
        mechanism = (options.get("sasl.mechanism") or options.get("sasl.mechanisms") or "PLAIN").upper()
        if mechanism not in _MODULES or not user or not password:
            problem = f"sasl.mechanism is not one of {', '.join(_MODULES)}, or the login or the password is missing."
            raise _wrong(credentials, problem)
        client |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        jaas = f"{_MODULES[mechanism]} required username={_quoted(user)} password={_quoted(password)};"
        spark |= {"kafka.sasl.mechanism": mechanism, "kafka.sasl.jaas.config": jaas}
    if authority := options.get("ssl.ca.location"):
        client["ssl.ca.location"] = authority
        spark |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": authority}
    return Cluster(servers, client, spark)


def servers_of(credentials: Credentials) -> str:
    """Return the brokers that a connection names; "" if it names none."""
    if named := credentials.options.get("bootstrap.servers"):
        return named
    if not credentials.host:
        return ""
    port = credentials.port or 9092
    hosts = (host.strip() for host in credentials.host.split(","))
    return ",".join(host if re.search(r":\d+$", host) else f"{host}:{port}" for host in hosts)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _wrong(credentials: Credentials, problem: str) -> ConnectionUnknownError:
    return ConnectionUnknownError(credentials.conn_id, problem, hint="Correct the connection: see docs/kafka.md.")
