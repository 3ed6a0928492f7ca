"""Spark sessions: embedded local, of a submitted program, on a Spark Connect server, and one for each refresh.

A process uses either a JVM of its own or Spark Connect, never both: PySpark decides once per process which of the two
its functions address.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any
from urllib.parse import urlsplit

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from airflow_mv_provider.core.jvm_zone import IN_UTC_AND_ENGLISH, in_english
from airflow_mv_provider.core.secret import of_connect_address, without
from airflow_mv_provider.core.spark_versions import REQUIRED, packages_problem, spark_problem
from airflow_mv_provider.exceptions import DependencyError, EngineError, SettingError
from airflow_mv_provider.spark.causes.connect import of_refusal
from airflow_mv_provider.spark.packages import delta_packages, packages
from airflow_mv_provider.spark.warm_start import WarmStart, is_default, java

# Settings that every refresh relies on; they override those of the surrounding session.
_CONFS = {
    "spark.sql.session.timeZone": "UTC",  # a zone with daylight saving shifts timestamps in its gap
    "spark.sql.ansi.enabled": "true",  # overflow and bad casts fail instead of becoming NULL
    "spark.sql.caseSensitive": "false",
    # Spark's default counts nanoseconds: other readers of main misread years before 1677.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.variable.substitute": "false",  # ${env:...} in a query or a path stays text and leaks no secret
    # Makes a transaction version left over from an earlier statement an error instead of a silently dropped commit.
    "spark.databricks.delta.write.txnVersion.autoReset.enabled": "true",
    # Whether an old version can be read is decided by its files: by default Delta refuses it for its age alone.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    # The default of 1e6 rows in one file would make one task write a whole partition's corrections.
    "spark.sql.adaptive.enabled": "true",
    # A MERGE reads the recorded files twice instead of copying them first: a third less time for 375,000 of 6 M rows.
    "spark.databricks.delta.merge.materializeSource": "none",
    # Spark looks up individually named files in one task each by default: 5,000 tasks for 5,000 files.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "200",
    # A file that Spark skips in silence would look like rows that the source has deleted.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Of files that do not name their writer, such as Arrow's: Parquet and Avro define the Gregorian calendar for all
    # times. LEGACY would shift dates before 1582, EXCEPTION refuse them. Files of Spark name their calendar themselves.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
}

# Names and beginnings of names of settings that change which values are read or what SQL means, without an error. The
# default of every Spark 4 is right, so it is enough to take back what a server or spark-defaults.conf has set: one call
# for all of them, also those of later versions, since most of them are `legacy`.
_STANDARD = (
    "spark.sql.legacy.",  # how older Sparks parsed times, decoded texts, cast and compared
    *("spark.sql.parquet.int96", "spark.sql.parquet.datetimeRebaseModeInWrite"),
    *("spark.sql.parquet.binaryAsString", "spark.sql.parquet.inferTimestampNTZ", "spark.sql.timestampType"),
    *("spark.sql.parquet.fieldId.read", "spark.sql.parquet.respectSummaryFiles", "spark.sql.parquet.ignoreVariant"),
    *("spark.sql.json.enable", "spark.sql.jsonGenerator.", "spark.sql.variant.allowDuplicateKeys"),
    *("spark.sql.sources.partitionColumnTypeInference", "spark.sql.sources.validatePartitionColumns"),
    *("spark.sql.files.ignoreInvalidPartitionPaths", "spark.sql.sources.useV1SourceList", "spark.sql.orc.impl"),
    *("spark.sql.readSideCharPadding", "spark.sql.charAsVarchar", "spark.sql.preserveCharVarcharTypeInfo"),
    *("spark.sql.ansi.doubleQuotedIdentifiers", "spark.sql.ansi.relationPrecedence", "spark.sql.parser."),
    *("spark.sql.mapKeyDedupPolicy", "spark.sql.storeAssignmentPolicy", "spark.sql.decimalOperations."),
    *("spark.sql.function.", "spark.sql.groupBy", "spark.sql.orderByOrdinal", "spark.sql.icu.caseMappings"),
)

_FOR_SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    # Adaptive execution runs each exchange as a job of its own: 52 jobs instead of 33 for a refresh of ten rows.
    "spark.sql.adaptive.enabled": "false",
    # Files as small as these are written again sooner than a deletion vector beside them: 0.7 of a MERGE's time.
    "spark.databricks.delta.merge.deletionVectors.persistent": "false",
}

_ERROR_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_REDACTED = "spark.sql.redaction.string.regex"
_OF_OPTIONS = r'options \{{\s*key: "(?:{})"\s*value: "(?:[^"\\]|\\.)*"'  # as protobuf prints it

_CONNECT_PORT = 15002
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PATIENCE_S = 10.0
_ANSWER_S = 30.0

WITH_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # the default of 50 costs seconds on small tables
}


def local_session(
    app_name: str = "airflow-mv",
    *,
    driver_memory: str = "2g",
    java_options: str = "",
    databases: str | None = None,
    **confs: str,
) -> SparkSession:
    """Return the session of this process; start local Spark with Delta if there is none.

    databases : names of the databases whose JDBC drivers are loaded; those of AMV_SOURCE_DATABASES unless given
    confs  : further Spark confs, with _ in place of the dots in their names
    cost   : 4 to 15 seconds for the first call (`amv warm-up` makes it shorter), plus Ivy's download of Delta's jars on
             a machine that lacks them
    raises : DependencyError, when Java is missing; EngineError, when Spark does not start
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()  # "active" is per thread; there is one SparkContext per process
    cores, start = os.cpu_count() or 1, warm_start(databases)
    options = [
        f"-Dlog4j2.configurationFile={log_settings()}",
        collector(java_options),
        start.java_options(),
        java_options,
    ]
    with start.alone_with_ivy():
        _start_quietly(
            WITH_DELTA
            | jvm_confs()
            | start.confs()
            | {
                "spark.master": os.environ.get("AMV_SPARK_MASTER", "local[*]"),
                "spark.app.name": app_name,
                "spark.driver.memory": os.environ.get("AMV_DRIVER_MEMORY", driver_memory),
                "spark.sql.shuffle.partitions": str(max(4, 2 * cores)),
                **database_confs(),
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.extraJavaOptions": " ".join(filter(None, options)),
            }
            | {name.replace("_", "."): value for name, value in confs.items()}
        )
        session = SparkSession.builder.getOrCreate()
        start.remember(session.sparkContext.getConf().get("spark.jars") or "")
    return session


def jvm_confs() -> dict[str, str]:
    """Return the confs by which JVMs are in UTC and English, except those of this machine's spark-defaults.conf."""
    return {name: value for name, value in IN_UTC_AND_ENGLISH.items() if not is_default(name)}


def database_confs() -> dict[str, str]:
    """Return where Spark's default database lies, which Spark creates; nothing if spark-defaults.conf sets it.

    It is unused here, and the temporary directory exists. With a metastore it may be others' as well.
    """
    name = "spark.sql.warehouse.dir"
    return {} if is_default(name) else {name: gettempdir()}


def collector(java_options: str = "") -> str:
    """Return the JVM option that selects the garbage collector; nothing where these or the environment's select one.

    Small refreshes are many short plans: with the parallel collector they take 0.8 of the time of Java's default.
    """
    chosen = (os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"))
    # A JVM that is given two of them ends at once.
    return "" if re.search(r"-XX:\+Use\w+GC", " ".join((java_options, *chosen))) else "-XX:+UseParallelGC"


def warm_start(databases: str | None = None) -> WarmStart:
    """Return what earlier starts of local Spark have left on this machine."""
    return WarmStart.of(packages(databases))


def end_local(patience_s: float) -> None:
    """End this process's JVM and wait until it has ended; nothing in this process can use Spark afterwards.

    raises : EngineError, if it does not end
    """
    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is None or gateway is None:
        return
    context.stop()
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()  # PySpark's JVM ends with the process at the other end of its stdin
    deadline = time.monotonic() + patience_s
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
            raise EngineError("Spark", f"the JVM did not end within {patience_s:g} s.")
        time.sleep(0.1)


def open_session(
    remote: str | None = None, *, answer_s: float = _ANSWER_S, databases: str | None = None
) -> SparkSession:
    """Return a session on the Spark Connect server at `remote`, or the embedded local one.

    raises : DependencyError, for versions that cannot be used or that do not fit each other
    """
    _check_installed()
    return connect_session(remote, answer_s=answer_s) if remote else local_session(databases=databases)


def connect_session(remote: str, *, answer_s: float = _ANSWER_S) -> SparkSession:
    """Return a new session on a Spark Connect server, which must have Delta's jars and extensions.

    remote   : sc://host:port, with PySpark's further parameters (;token=...;use_ssl=true)
    answer_s : how long the server may be silent; the first call to a server that is gone fails after a few times
               that, each later one after one and a half times it
    cost     : about a second
    raises   : SettingError, when the address is invalid; DependencyError, when the server has no Delta; EngineError,
               when the server does not answer
    """
    host, port = _host_and_port(remote)
    where = f"{host}:{port}"
    try:  # PySpark itself would retry for ten minutes
        socket.create_connection((host, port), _PATIENCE_S).close()
    except OSError as error:
        raise EngineError(
            "Spark Connect", f"no server responds at {where}.", hint="Start the server, then retry."
        ) from error
    if SparkContext._active_spark_context is not None:
        raise SettingError("Spark Connect", "this process has a local session.", hint="Use another process.")
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    # Imported late: this import makes a process with a JVM of its own a Connect client for good.
    from airflow_mv_provider.spark.patience import opened_with_timeouts

    try:
        session = opened_with_timeouts(remote, answer_s, is_on_this_machine=_host_and_port(remote)[0] in _LOOPBACK)
        extensions = session.conf.get("spark.sql.extensions", "") or ""
    except PySparkException as error:
        if str(error.getCondition()).startswith("INVALID_CONNECT_URL"):
            raise _no_address() from None  # its text quotes the invalid part, which may be a piece of a token
        problem, hint = of_refusal(without(of_connect_address(remote), str(error)))
        raise EngineError("Spark Connect", f"the server at {where} refused: {problem}.", hint=hint) from error
    if (unfit := spark_problem(session.version)) is not None:
        raise DependencyError("Spark Connect", f"the server at {where} has {unfit}.", hint="Use another server.")
    if (lacking := _lacks_of_delta(session, extensions)) is not None:
        confs = " ".join(f"--conf {name}={value}" for name, value in WITH_DELTA.items())
        hint = f"Start it with --packages {delta_packages(session.version)} {confs}."
        problem = f"the server at {where} has Spark {session.version} and {lacking}."
        raise DependencyError("Spark Connect", problem, hint=hint)
    return session


def _lacks_of_delta(session: SparkSession, extensions: str) -> str | None:
    """Return what a server lacks of Delta; None if nothing.

    cost : one question, which runs no job; Spark itself ignores an extension whose class is missing
    """
    if "DeltaSparkSessionExtension" not in extensions:
        return "no Delta"
    try:
        session.catalog.currentDatabase()  # loads Delta's catalog
    except PySparkException as error:
        return "cannot load Delta's jar" if "delta" in str(error).lower() else None
    return None


def _check_installed() -> None:
    """Check the versions of Spark's Python packages.

    raises : DependencyError
    """
    # Not the version that PySpark says: its files may be those of the other package.
    installed = _version_of("pyspark") or pyspark.__version__
    if (problem := packages_problem(installed, _version_of("pyspark-client"))) is not None:
        again = (
            "Install the same version of both, or only one. First remove them: pip uninstall pyspark pyspark-client;"
        )
        again += f' then pip install "pyspark[connect]=={installed}" "pyspark-client=={installed}".'
        raise DependencyError("Spark", f"{problem}.", hint=again)
    if (problem := spark_problem(pyspark.__version__)) is not None:
        raise DependencyError("Spark", f"PySpark has {problem}.", hint=f'pip install "{REQUIRED}".')


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _host_and_port(remote: str) -> tuple[str, int]:
    try:
        found = urlsplit(remote)
        host, port = found.hostname, found.port or _CONNECT_PORT
    except ValueError:
        raise _no_address() from None  # it quotes the invalid port, which may be a password before an @
    if found.scheme != "sc" or not host:
        raise _no_address()
    return host, port


def _no_address() -> SettingError:
    problem = "the address is not sc://host:port, or sc://host:port/;name=value;..."
    return SettingError("Spark Connect", problem, hint="Correct AMV_SPARK_REMOTE.")


def is_remote(spark: SparkSession) -> bool:
    """True if a session is on a Spark Connect server."""
    return not hasattr(spark, "sparkContext") or type(spark).__module__.startswith("pyspark.sql.connect")


def submitted_session() -> SparkSession:
    """Return the session of a program that spark-submit started; master and resources come from the submission.

    raises : DependencyError, when Delta's jars were not submitted with it
    """
    builder = SparkSession.builder
    for name, value in WITH_DELTA.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        session.catalog.currentDatabase()  # a session without Delta's classes starts nonetheless and fails here
    except (PySparkException, Py4JError) as error:
        raise DependencyError(
            "spark-submit", "Delta's classes are missing.", hint=f"Submit with --packages {delta_packages()}."
        ) from error
    return session


def isolated(spark: SparkSession) -> SparkSession:
    """Return a session with its own confs: transaction confs are per session, and writers must not share them."""
    session = spark if is_remote(spark) else spark.newSession()  # a remote session is not shared anyway
    apply_required_confs(session)
    _print_no_errors()
    return session


def _print_no_errors() -> None:
    """Keep PySpark from printing each error, with its plan as JSON, on stderr: it raises the same error.

    Some are expected: whether an expression is deterministic is found out by one. A level that somebody has set stays.
    """
    for name in _ERROR_LOGGERS:
        logger = PySparkLogger.getLogger(name)
        if logger.level == logging.WARNING:  # as PySpark makes it
            logger.setLevel(logging.CRITICAL)


def apply_required_confs(session: SparkSession) -> None:
    """Set the confs that every refresh relies on; called again after foreign code has used the session."""
    for name in session.conf.getAll:
        if name.startswith(_STANDARD) and name not in _CONFS and session.conf.isModifiable(name):
            session.conf.unset(name)
    for name, value in _CONFS.items():
        session.conf.set(name, value)


def hide_passwords(session: SparkSession, options: Sequence[str] = ("user", "password")) -> None:
    """Keep the values of some options of a read out of a Spark Connect server's event log and pages.

    The server writes down each request, shortened only if it is long. Spark itself hides `user` and `password`
    everywhere else.
    """
    if options and is_remote(session):
        known, wanted = session.conf.get(_REDACTED, None), _OF_OPTIONS.format("|".join(map(re.escape, options)))
        if not known or wanted not in known:
            session.conf.set(_REDACTED, f"{wanted}|{known}" if known else wanted)


@contextmanager
def small_plan_confs(session: SparkSession, *, is_small: bool) -> Iterator[None]:
    """Make a session interpret small plans instead of compiling them, and rewrite small files instead of marking rows.

    source : benchmarks/refresh.py --table small, and with --compiled: 4.4 s instead of 5.0 s in a JVM just started
    """
    before: dict[str, str | None] = {}
    with _ignoring_unreachable():
        for name in _FOR_SMALL if is_small else ():
            before[name] = session.conf.get(name, None)
            session.conf.set(name, _FOR_SMALL[name])
    try:
        yield
    finally:
        with _ignoring_unreachable():
            for name, value in before.items():
                if value is None:
                    session.conf.unset(name)
                else:
                    session.conf.set(name, value)


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Tag the Spark jobs that this thread starts inside the block, so that `interrupt` can stop them from any thread.

    In a local JVM the context's tags are used: a session's own tags are visible only to the thread that set them.

    tag : unique in the whole JVM, or on the server
    """
    if is_remote(session):
        add, remove = session.addTag, session.removeTag
    else:
        context = session.sparkContext
        add, remove = context.addJobTag, context.removeJobTag
    add(tag)
    try:
        yield
    finally:
        with _ignoring_unreachable(), suppress(AttributeError):  # a stopped context has no JVM
            remove(tag)


def interrupt(session: SparkSession, tag: str) -> None:
    """Interrupt the jobs that run under `tag`; jobs that its thread starts afterwards run normally."""
    if is_remote(session):
        session.interruptTag(tag)
    else:
        session.sparkContext.cancelJobsWithTag(tag)


def _ignoring_unreachable() -> suppress:
    """Suppress errors of a server or JVM that does not answer; the work itself meets and reports them."""
    return suppress(PySparkException, Py4JError, OSError)


def check_java() -> None:
    """Check that there is a Java for Spark to start.

    raises : DependencyError
    """
    if java() is None:
        home = os.environ.get("JAVA_HOME")
        where = f" under JAVA_HOME ({home})" if home else ""
        raise DependencyError("Spark", f"Java is not found{where}.", hint="Install Java 17, or set JAVA_HOME to it.")


def log_settings() -> str:
    """Return the URI of the logging configuration of a JVM that this package starts."""
    return (Path(__file__).parent / "log4j2.properties").as_uri()


def _start_quietly(confs: dict[str, str]) -> None:
    """Start the JVM and withhold its output (Ivy's report, start-up warnings) unless the start fails.

    With AMV_SPARK_LOG_LEVEL set, all output goes to stderr; never to stdout, which carries the command's result.
    """
    check_java()
    conf = SparkConf(loadDefaults=False).setAll(list(confs.items()))
    with TemporaryFile() as chatter:
        target: Any = 2 if "AMV_SPARK_LOG_LEVEL" in os.environ else chatter
        try:
            # A JVM whose last session was stopped is reused, as PySpark does.
            with _english():
                gateway = SparkContext._gateway or launch_gateway(
                    conf, popen_kwargs={"stdout": target, "stderr": target}
                )  # type: ignore[no-untyped-call]
            SparkContext(conf=conf, gateway=gateway)
        except (PySparkException, Py4JError) as error:
            chatter.seek(0)
            message = informative(chatter.read().decode(errors="replace"))
            hint = "Set AMV_SPARK_LOG_LEVEL=warn to see its log, then try again."
            raise EngineError("Spark", f"the JVM did not start: {message}.", hint=hint) from error


@contextmanager
def _english() -> Iterator[None]:
    """Have programs that are started in the block print English: PySpark takes no environment for its JVM."""
    before = dict(os.environ)
    wanted = in_english(before)
    os.environ |= wanted
    for name in before.keys() - wanted:
        del os.environ[name]
    try:
        yield
    finally:
        for name in wanted.keys() - before:
            del os.environ[name]
        os.environ |= before


def informative(chatter: str) -> str:
    """Return the line of a JVM's output with the reason why it did not start."""
    lines = [line.strip() for line in chatter.splitlines() if line.strip()]
    # Ivy names each repository that it could not ask, also for files that it then found elsewhere.
    if ended := re.search(r'^Exception in thread "main" (?:[\w.$]+: )?(.*)', chatter, re.MULTILINE):
        return ended[1].strip()[:300].rstrip(". ")
    wanted = ("Exception", "not found", "not set", "rror:", "UNRESOLVED DEPENDENCIES")
    informative = (
        [line for line in lines if any(word in line for word in wanted)] or lines[-1:] or ["it printed nothing"]
    )
    return informative[0][:300].rstrip(". ")
