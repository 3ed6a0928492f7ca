"""The command that runs PySpark's own Spark Connect server, with Delta and with this package's settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_mv_provider.core.jvm_zone import in_english
from airflow_mv_provider.spark.session import (
    WITH_DELTA,
    check_java,
    collector,
    database_confs,
    jvm_confs,
    log_settings,
    warm_start,
)
from airflow_mv_provider.spark.warm_start import spark_home

TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # nosec B105  # a name; Spark and PySpark both read it


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """A Spark Connect server that can be started.

    host   : the address that it listens on, and that its executors reach it at
    master : as of spark-submit; local[*] runs everything in the server's own process
    memory : of its JVM, as Java writes it
    confs  : further Spark confs; they override those of this package
    """

    host: str
    port: int
    master: str
    memory: str
    confs: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        """Return the program and its arguments, which hold no secret.

        raises : DependencyError, when Java is missing
        """
        check_java()
        cores, start = os.cpu_count() or 1, warm_start()
        confs = {
            **WITH_DELTA,
            **jvm_confs(),
            **start.confs(),
            "spark.app.name": "airflow-mv server",
            "spark.master": self.master,
            "spark.driver.memory": self.memory,
            "spark.driver.host": self.host,
            "spark.driver.bindAddress": self.host,
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings()} {collector()}",
            "spark.connect.grpc.binding.address": self.host,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.sql.shuffle.partitions": str(max(4, 2 * cores)),
            **database_confs(),
            "spark.ui.enabled": "false",
            **self.confs,
        }
        options = [word for name, value in confs.items() for word in ("--conf", f"{name}={value}")]
        main = "org.apache.spark.sql.connect.service.SparkConnectServer"
        return [str(spark_home() / "bin" / "spark-submit"), "--class", main, *options]

    def environment(self, token: str | None = None) -> dict[str, str]:
        """Return the environment to run it in: this process's, and a token that its clients have to present."""
        ours = {name: value for name, value in in_english(os.environ).items() if name != "SPARK_CONNECT_MODE_ENABLED"}
        return ours | {"SPARK_HOME": str(spark_home())} | ({TOKEN_VARIABLE: token} if token else {})
