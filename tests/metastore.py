"""A real Hive metastore, behind a second session of the tests' JVM or behind processes of their own.

On embedded Derby it serves one JVM at a time, in PostgreSQL any number. Each has a directory or a database of its own.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pyspark

from airflow_mv_provider.spark.causes.databases import DRIVERS
from scripts.java_programs import fetch


def hive_confs(directory: Path) -> dict[str, str]:
    """Return the confs of a Spark whose catalog is a metastore in `directory`, which is made where it is missing."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(directory / "managed"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/metastore_db;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
    }


def spark_defaults(directory: Path) -> Path:
    """Write these confs where Spark's own programs look for them; return that directory, for SPARK_CONF_DIR."""
    conf = directory / "conf"
    conf.mkdir(parents=True)
    lines = [f"{name} {value}" for name, value in hive_confs(directory).items()]
    lines.append(f"spark.driver.extraJavaOptions -Dderby.stream.error.file={directory}/derby.log")
    (conf / "spark-defaults.conf").write_text("\n".join(lines), encoding="utf-8")
    return conf


class InPostgresql:
    """A metastore in a database, as docs/catalogs.md says it is set up.

    address : of an empty database, as psycopg takes it, with the role and without its password
    """

    def __init__(self, directory: Path, address: str, password: str) -> None:
        parts = urlsplit(address)
        self._properties = {
            "javax.jdo.option.ConnectionURL": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}",
            "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
            "javax.jdo.option.ConnectionUserName": str(parts.username),
            "javax.jdo.option.ConnectionPassword": password,
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": str(directory / "managed"),
        }
        fetch(directory / "lib", DRIVERS["org.postgresql.Driver"])
        driver = next((directory / "lib").glob("postgresql-*.jar"))
        self.conf = directory / "conf"
        """For SPARK_CONF_DIR."""
        self.conf.mkdir()
        confs = f"spark.sql.catalogImplementation hive\nspark.driver.extraClassPath {driver}\n"
        (self.conf / "spark-defaults.conf").write_text(confs, encoding="utf-8")

    def write(self, *, is_new: bool) -> None:
        """Write hive-site.xml; `is_new` lets the next Spark that asks the metastore make all of its tables first.

        Made one by one, when they are needed, they never end: a foreign key is added by a second connection, which
        waits for the open transaction of the first.
        """
        making = {
            "datanucleus.schema.autoCreateAll": "true",
            "datanucleus.autoStartMechanism": "Classes",
            "datanucleus.autoStartClassNames": ",".join(_classes()),
        }
        properties = self._properties | (making if is_new else {})
        lines = [
            f"<property><name>{name}</name><value>{escape(value)}</value></property>"
            for name, value in properties.items()
        ]
        text = "\n".join(["<configuration>", *lines, "</configuration>"])
        (self.conf / "hive-site.xml").write_text(text, encoding="utf-8")


def _classes() -> list[str]:
    """Return the classes that have tables, from the description that Hive's jar has of them."""
    jar = next((Path(pyspark.__file__).parent / "jars").glob("hive-metastore-*.jar"))
    with zipfile.ZipFile(jar) as files:
        described = ElementTree.fromstring(files.read("package.jdo"))
    return [
        f"{package.get('name')}.{each.get('name')}"
        for package in described.iter("package")
        for each in package.iter("class")
    ]


def hive_session(spark: Any, directory: Path) -> Any:
    """Return a session of the same JVM whose catalog is a metastore; the other sessions keep theirs, in memory."""
    from pyspark.sql import SparkSession

    jvm, context = spark._jvm, spark.sparkContext
    jvm.System.setProperty("derby.stream.error.file", str(directory / "derby.log"))
    options = jvm.java.util.HashMap()
    for name, value in hive_confs(directory).items():
        options.put(name.removeprefix("spark.hadoop."), value)
    # A session without a shared state makes one of its own, with the static confs that it is given.
    return SparkSession(
        context, jsparkSession=jvm.org.apache.spark.sql.classic.SparkSession(context._jsc.sc(), options)
    )
