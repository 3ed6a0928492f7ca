"""Translate Spark's and Delta's errors into this package's; the only module that does.

PySpark cannot always render a Delta error, so no decision relies on a whole message: the error condition in square
brackets decides, and at most one line of text is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException, PySparkException

from airflow_mv_provider.core.jvm_zone import IN_UTC
from airflow_mv_provider.core.location import MARKER
from airflow_mv_provider.exceptions import (
    CorruptRecordError,
    DefinitionError,
    DependencyError,
    DiskFullError,
    EngineError,
    FencedError,
    FileEncodingError,
    InterruptedRefreshError,
    MainMovedError,
    MvError,
    SchemaMismatchError,
    SettingError,
    SourceChangedError,
    SourceFileError,
    SourceNotFoundError,
    UnpinnedTableError,
)
from airflow_mv_provider.spark.causes.databases import connectors, missing_connector, of_database
from airflow_mv_provider.spark.causes.streams import of_stream

# Texts that this package's SQL raises with raise_error; `translate` maps each to an error class.
ROW_MISMATCH = "MV-ROW-MISMATCH"
BAD_ENCODING = "MV-BAD-ENCODING"
BAD_RECORD = "MV-BAD-RECORD"
BAD_QUOTE = "MV-BAD-QUOTE"
BAD_HEADER = "MV-BAD-HEADER"
BLANK_LINE = "MV-BLANK-LINE"
QUOTED_NULL = "MV-QUOTED-NULL"
UNKNOWN_FIELD = "MV-UNKNOWN-FIELD"
OTHER_ZONE = "MV-OTHER-ZONE"
UNKNOWN_FILE = "MV-UNKNOWN-FILE"

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_SCHEME = r"\b(?:file|hdfs|abfss?|gs|s3a?):/"
_FILE_URI = re.compile(rf"{_SCHEME}[^\s'\",]+")
# A path with blanks: in these sentences of Spark as it is; in its others, and in this package's own, encoded.
_PATH = re.compile(rf"(?:not exist: |FILE_FOOTER\] Encountered error while reading file )({_SCHEME}.+?)\.(?:\s|$)")
_ENCODED = re.compile(rf"(?:reading file|MV-[A-Z-]+) ({_SCHEME}\S+?)\.?(?:\s|$)")
_MOVED = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "DELTA_MAX_COMMIT_RETRIES")
_ANALYSIS = (
    *(
        "UNRESOLVED_COLUMN",
        "PARSE_SYNTAX_ERROR",
        "UNRESOLVED_ROUTINE",
        "DATATYPE_MISMATCH",
        "PARSE_EMPTY_STATEMENT",
    ),
    *("UNRESOLVED_STAR", "MISSING_AGGREGATION", "UNSUPPORTED_DATATYPE", "INVALID_EXTRACT", "WRONG_NUM_ARGS"),
    *("MISSING_GROUP_BY", "UNDEFINED_FUNCTION", "COLUMN_ALREADY_EXISTS", "AMBIGUOUS_REFERENCE"),
    "INVALID_PARAMETER_VALUE",
)
_SAME_NAME = ("COLUMN_ALREADY_EXISTS", "AMBIGUOUS_REFERENCE_TO_FIELDS")
_CANCELLED = ("SPARK_JOB_CANCELLED", "OPERATION_CANCELED")  # in this process's JVM, and on a Connect server
_NO_JAR = ("DATA_SOURCE_NOT_FOUND", "Failed to find data source: ", "NOT_LOADED_SQL_FUNCTIONS_UNUSABLE")
_FULL = ("No space left on device", "Disk quota exceeded")  # Linux's message, and HDFS's for a quota
_NO_TYPE = (
    *("UNSUPPORTED_TIME_TYPE", "UNSUPPORTED_CHAR_OR_VARCHAR_AS_STRING", "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE"),
    *("PARQUET_TYPE_ILLEGAL", "PARQUET_TYPE_NOT_SUPPORTED", "PARQUET_TYPE_NOT_RECOGNIZED"),
    "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION",
)
# A missing commit, and a commit file that is damaged; excludes files that a network or permission problem hides.
_INCOMPLETE_LOG = ("DELTA_VERSIONS_NOT_CONTIGUOUS", "DELTA_TRUNCATED_TRANSACTION_LOG")
_NOT_AS_WRITTEN = ("MALFORMED_RECORD_IN_PARSING", "ChecksumException", "is not a Parquet file")
_ILLEGAL_PARQUET = "Illegal Parquet type"
_OTHER_TYPE = "Write the column with another type (STRING for texts, microseconds for times), or leave it out."
_VALUES = (
    r"Malformed CSV record: (.*?)(?: SQLSTATE|\n|$)",
    r"For input string: \"(.*?)\"",
    r"Value out of range\. Value:\"(.*?)\"",
    r"Text '(.*?)' could not be parsed",
    r"Error parsing '(.*?)' to interval",
    r"rounded half up from (\S+) cannot be represented",
)
_UNANSWERED = re.compile(r"does not exist in the JVM|\AAn error occurred while calling \S+\Z")
_MAX_TEXT = 300
# A JVM that has died refuses connections, or resets them, in Python's own words.
FROM_SPARK = (PySparkException, Py4JError, ConnectionError)
_CLIENT = "pyspark.sql.connect."


@contextmanager
def translated(where: str, translation: Callable[[BaseException], MvError] | None = None) -> Iterator[None]:
    """Translate an error that Spark raises inside the block into an `MvError`; the original is kept as the cause.

    translation : returns what is raised; `translate` unless given
    """
    try:
        yield
    except (*FROM_SPARK, AssertionError) as error:
        if not is_of_spark(error):  # an assertion may be Spark's, or a caller's
            raise
        raise (translate(error, where) if translation is None else translation(error)) from error


def understood(where: str) -> AbstractContextManager[None]:
    """As `translated`, for a definition's own SQL or code; a table that it names and that is missing is its error."""
    return translated(where, lambda error: _of_definition(error, where))


def _of_definition(error: BaseException, where: str) -> MvError:
    if condition_of(error).startswith("TABLE_OR_VIEW_NOT_FOUND"):
        named = re.search(r"table or view (\S+) cannot be found", _text(error))
        name = named.group(1) if named else "it names"
        return UnpinnedTableError(where, f"there is no table {name}, and no input of that name.")
    found = translate(error, where)
    if isinstance(found, EngineError) and isinstance(error, AnalysisException):
        return DefinitionError(where, f"Spark rejects this: {first_line(_text(error))}.")
    return found


def is_of_spark(error: BaseException) -> bool:
    """True if the error comes from Spark or Py4J, so that `translate` applies to it."""
    return isinstance(error, FROM_SPARK) or _is_of_client(error)


def _is_of_client(error: BaseException) -> bool:
    """True for an assertion of Spark Connect's client, which raises one when it loses an answer of the server."""
    if not isinstance(error, AssertionError) or (trace := error.__traceback__) is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__", "")).startswith(_CLIENT)


def _is_unanswered(error: BaseException) -> bool:
    """True if Py4J lost a JVM's answer: it says then that a class does not exist, or which call failed and no more."""
    is_bare = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    return is_bare and _UNANSWERED.search(_text(error)) is not None


def condition_of(error: BaseException) -> str:
    """Return the error's condition, such as DELTA_CONCURRENT_APPEND; "" when it has none."""
    with suppress(Exception):  # PySpark calls the JVM, which may have exited
        if isinstance(error, PySparkException) and (found := error.getCondition()):
            return str(found)
    matched = _CONDITION.search(_text(error))
    return matched.group(1) if matched else ""


def is_gone(error: MvError) -> bool:
    """True if an error of reading a version means that its files, or its log, cannot be read."""
    cause = error.__cause__
    is_of_log = cause is not None and condition_of(cause).startswith("DELTA_")
    return isinstance(error, SourceChangedError | SourceFileError) or is_of_log


def translate(error: BaseException, where: str) -> MvError:
    """Return the `MvError` for one of Spark's errors; facts in its text (a file, a column) are kept."""
    if isinstance(error, ConnectionError | Py4JNetworkError) or _is_unanswered(error):
        return EngineError(where, "Spark's JVM does not respond; it may have been killed.")
    if _is_of_client(error):
        return EngineError(where, "Spark Connect's client lost the answer to a command.")
    text = _text(error)
    condition = condition_of(error)
    # Spark's message does not describe a failed connection; the driver's own is among the causes.
    all_text = f"{text}\n{_trace(error)}" if condition.startswith("FAILED_JDBC") else text
    of_rows = _of_text(text, where) or _time_problem(text, where)
    if found := of_database(all_text, where) or of_stream(text, where) or of_rows:
        return found
    if ROW_MISMATCH in text:
        return MainMovedError(where, "a row of the table changed after the differences were computed.")
    if raised := re.search(r"\[USER_RAISED_EXCEPTION\] (?!MV-)(.*?)\.?(?: SQLSTATE|\n|$)", text):
        hint = "Correct the source, or the SQL of the definition, then refresh again."
        return CorruptRecordError(where, f"the definition's SQL raised: {first_line(raised[1])}.", hint=hint)
    if "DELTA_CONCURRENT_TRANSACTION" in text:
        return FencedError(where, "another process of this table committed first.")
    if condition.startswith(_MOVED) or any(f"[{prefix}" in text for prefix in _MOVED):
        return MainMovedError(where, f"another writer changed the table during the commit ({condition}).")
    if any(words in text for words in _FULL):
        return DiskFullError(where, f"a disk that Spark writes to is full: {_informative(_FULL, text)}.")
    if condition in _CANCELLED:
        return InterruptedRefreshError(where, f"the Spark job was cancelled: {first_line(text)}.")
    if "StatusCode.UNAVAILABLE" in text:
        hint = "Start the server or repair the connection to it, then refresh again."
        return EngineError(where, f"the Spark Connect server does not respond: {first_line(text)}.", hint=hint)
    return _source_error(error, where, text, condition) or _engine_error(where, text)


def _of_text(text: str, where: str) -> MvError | None:
    """Return the error for what is in a text file; this package's SQL has raised it, or Spark's reader."""
    if BAD_ENCODING in text or "MALFORMED_CHARACTER_CODING" in text:
        return FileEncodingError(where, f"{_file_in(text)} holds bytes that are not in the declared encoding.")
    if BAD_QUOTE in text:
        problem = f"{_file_in(text)} has a quoted value that is not closed, or continues after its closing quote."
        hint = "Correct it. A value with a line break inside its quotes needs the option `multiLine: true`; quotes that"
        hint += " are doubled inside a value need `escape: '\"'`."
        return CorruptRecordError(where, problem, hint=hint)
    if BAD_HEADER in text or "does not conform to the schema" in text or "CSV header" in text:
        hint = 'Change the schema or the file; if its first line is a record, set `options: {header: "false"}`.'
        problem = f"the header of {_file_in(text)} does not match the schema: {_header(text)}."
        return SchemaMismatchError(where, problem, hint=hint)
    if BLANK_LINE in text:
        problem = f"{_file_in(text)} has a line with white space or control characters alone, which Spark would skip."
        hint = (
            "Remove it, or set the option `multiLine: true`, with which it is a record; only empty lines are skipped."
        )
        return CorruptRecordError(where, problem, hint=hint)
    if QUOTED_NULL in text:
        null = _raised(QUOTED_NULL, text)
        problem = f"{_file_in(text)} has a quoted value {null}, as `nullValue` is: Spark cannot tell it from NULL."
        hint = f"Leave out `nullValue`, and write in `select` what is NULL: nullif(<column>, {null})."
        return CorruptRecordError(where, problem, hint=hint)
    if BAD_RECORD in text:
        return CorruptRecordError(where, f"{_file_in(text)} has a record that does not fit: {_record(text)}.")
    if UNKNOWN_FIELD in text:
        return SchemaMismatchError(
            where,
            f"{_file_in(text)} has field {_raised(UNKNOWN_FIELD, text)}, the schema does not.",
            hint="Add the field to the schema; `select` can leave it out of the table.",
        )
    return None


def _source_error(error: BaseException, where: str, text: str, condition: str) -> MvError | None:
    if condition.startswith("PATH_NOT_FOUND"):
        return SourceNotFoundError(where, f"{_file_in(text)} does not exist.")
    if any(words in text for words in _NO_JAR):
        return _missing_format(where, text)
    if of_place := _place_problem(where, text, condition):
        return of_place
    if where == "source" and (found := re.search(rf"\[(?:{'|'.join(_SAME_NAME)})\][^`]*`([^`]+)`", text)):
        hint = (
            "Rename one of them, in the files and in the `schema` if there is one: Spark does not distinguish capitals."
        )
        problem = f"there are two columns or fields {found.group(1)!r}, which differ in capitals at most."
        return SchemaMismatchError(where, problem, hint=hint)
    if condition.startswith(_NO_TYPE) or _ILLEGAL_PARQUET in text:
        return SchemaMismatchError(where, f"a column has a type that cannot be read: {_cause(text)}.", hint=_OTHER_TYPE)
    if "CANNOT_MERGE_SCHEMAS" in text:
        return SchemaMismatchError(where, f"the files do not have the same columns: {_cause(text)}.")
    if "MALFORMED_CSV_RECORD" in text or "MALFORMED_RECORD_IN_PARSING" in text:
        return CorruptRecordError(where, f"{_file_in(text)} has a record that does not fit: {_record(text)}.")
    if "FAILED_READ_FILE.FILE_NOT_EXIST" in text or "DELTA_FILE_NOT_FOUND" in text:
        return SourceChangedError(where, f"{_file_in(text)} was removed after it was pinned.")
    if condition.startswith(("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER")) or "is not a Parquet file" in text:
        return SourceFileError(where, f"{_file_in(text)} cannot be read: {_cause(text)}.")
    if "Permission denied" in text:
        hint = "Give the user of Spark's processes read access to it."
        return SourceFileError(where, f"{_file_in(text)} cannot be read: permission denied.", hint=hint)
    if condition.startswith(_ANALYSIS) or (where == "source" and _is_refused(error, condition)):
        return DefinitionError(where, f"Spark rejects this: {first_line(text)}.")
    if _sql_state(text).startswith("22"):  # data exceptions: overflow, a cast that fails
        return CorruptRecordError(where, f"a value cannot be converted: {first_line(text)}.")
    return None


def _stale_checksum(where: str, file: str) -> SourceFileError:
    folder, _, name = file.rpartition("/")
    checksum = f"{folder}/.{name}.crc"
    hint = f"If the file was changed on purpose, remove {checksum}; otherwise restore the file. Then refresh again."
    return SourceFileError(where, f"{file} is not as it was when its checksum was written to {checksum}.", hint=hint)


def _time_problem(text: str, where: str) -> MvError | None:
    """Return the error for times that Spark cannot read, or would read as others."""
    if found := re.search(rf"{OTHER_ZONE} ([A-Za-z][\w/+:-]*)", text):
        return in_other_zone(where, found.group(1))
    if "nanos > 999999999 or < 0" in text:
        problem = f"{_file_in(text)} has a time before 1970 with a fraction of a second, as Arrow writes it to ORC"
        hint = "Write these times without a fraction, or the file as Parquet."
        return CorruptRecordError(where, f"{problem}, which Spark cannot read.", hint=hint)
    return None


def in_other_zone(where: str, zone: str) -> SettingError:
    """Return the error for a JVM whose time zone would shift times that it reads."""
    problem = f"a JVM of Spark is in the time zone {zone}, which would shift times of the source."
    confs = " ".join(f"--conf {name}={value}" for name, value in IN_UTC.items())
    return SettingError(where, problem, hint=f"Start Spark's driver and executors in UTC: {confs}.")


def _missing_format(where: str, text: str) -> DependencyError:
    found = re.search(r"Failed to find (?:the )?data source: ([^\s]+?)\.? |(AVRO)_NOT_LOADED", text)
    name = found.group(1) or found.group(2).lower() if found else "of this name"
    if name in connectors():
        return missing_connector(where, name)
    hint = (
        "Check its name; set AMV_SPARK_PACKAGES=<group>:<artifact>:<version> where Spark starts: here, or for"
        " `amv server`, and restart that."
    )
    return DependencyError(where, f"Spark has no data source {name}: its jar is missing.", hint=hint)


def _place_problem(where: str, text: str, condition: str) -> MvError | None:
    """Return the error for a path, a file's name or checksum, or folders that Hadoop and Spark cannot read."""
    if found := re.search(r"Checksum error: (\S.*?) at \d+ exp: ", text):
        return _stale_checksum(where, _plain(found.group(1)))
    if condition.startswith("CONFLICTING_PARTITION_COLUMN_NAMES"):
        return SourceFileError(where, _folders(text), hint="Name one of them with its own path, or move the others.")
    if found := re.search(r"Illegal file pattern: (.*)", text):
        return DefinitionError(where, f"the path is not a valid glob: {found.group(1).rstrip('.')}.")
    if found := re.search(r"Relative path in absolute URI: (.*)", text):
        hint = "Rename it: Hadoop reads the part before a colon as a scheme."
        return SourceFileError(where, f"{found.group(1).strip()!r} has a colon in its name.", hint=hint)
    return None


def _is_refused(error: BaseException, condition: str) -> bool:
    """True if Spark rejects the request itself, so that a retry would be rejected too."""
    refusal = AnalysisException | IllegalArgumentException | ParseException
    return isinstance(error, refusal) and not condition.startswith("DELTA_")


def damage_of_log(error: BaseException) -> str | None:
    """Return what an error shows to be damaged in a Delta log; None when it shows no damage."""
    text = _text(error)
    if condition_of(error).startswith(_INCOMPLETE_LOG):
        return first_line(text)
    if not any(word in text for word in _NOT_AS_WRITTEN):
        return None
    file = next((uri for uri in _FILE_URI.findall(text) if "/_delta_log/" in uri), None)
    return file and f"{_plain(file)} is not as it was written"


def first_line(text: str) -> str:
    """Return the first informative line of an error's text, without the stack trace and cut to 300 characters."""
    # gRPC reports the cause of a failed call to a Connect server in the second or third line of its message.
    if found := re.match(r"<_\w+ of RPC that terminated with:.*?details = \"(.*?)\"$", text, re.DOTALL | re.MULTILINE):
        text = found.group(1)
    # Py4J puts one line before Java's message.
    lines = [line.strip() for line in text.splitlines() if not line.startswith("An error occurred while calling")]
    shown = next((line for line in lines if _CONDITION.search(line)), next((line for line in lines if line), ""))
    at = _CONDITION.search(shown)
    shown = shown[at.start() :] if at else shown
    shown = re.sub(r"^: (?:[a-z]\w*\.)+", "", shown)
    shown = re.sub(r"\s*SQLSTATE: \w+", "", shown).rstrip(". ;")
    return shown if len(shown) <= _MAX_TEXT else shown[: _MAX_TEXT - 3] + "..."


def _informative(words: Sequence[str], text: str) -> str:
    """Return the first line that contains one of these words."""
    line = next(line for line in text.splitlines() if any(word in line for word in words))
    return first_line(re.sub(r"^\s*Caused by: ", "", line))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def _trace(error: BaseException) -> str:
    """Return the JVM's stack trace with all causes; "" if there is none, or a Connect server keeps it."""
    # PySpark has no public name for it in this process; over Connect it has another one.
    return str(getattr(error, "_stackTrace", None) or getattr(error, "_stacktrace", None) or "")


def _engine_error(where: str, text: str) -> EngineError:
    if "exception was thrown from the Python worker" not in text:
        return EngineError(where, f"Spark failed: {first_line(text)}.")
    kinds = re.findall(r"^((?:\w+\.)*\w+(?:Error|Exception))\b", text, re.MULTILINE)
    hint = "See the Spark log of this refresh: the text may hold anything, so it is not kept. Then refresh again."
    return EngineError(where, f"Python code that Spark ran raised {kinds[-1] if kinds else 'an error'}.", hint=hint)


def _sql_state(text: str) -> str:
    found = re.search(r"SQLSTATE: (\w+)", text)
    return found.group(1) if found else ""


def _file_in(text: str) -> str:
    """Return the file that an error is about; files in a workspace, where the job was writing, are left out."""
    found = [*_PATH.findall(text), *map(unquote, _ENCODED.findall(text)), *_FILE_URI.findall(text)]
    return next((_plain(uri) for uri in found if f"/{MARKER}/" not in uri), "the source")


def _plain(uri: str) -> str:
    return re.sub(r"^file:/+", "/", uri.rstrip("."))


def _folders(text: str) -> str:
    """Describe which folders have which partition columns, from Spark's list of both."""
    folders = sorted({re.sub(r"^file:/+", "/", uri) for uri in _FILE_URI.findall(text)})
    columns = re.findall(r"Partition column name list #\d+: (.*)", text)
    named = " and ".join(repr(each.strip()) for each in columns[:3])
    return f"its folders have different partition columns, {named}: {', '.join(folders[:4])}."


def _header(text: str) -> str:
    if found := re.search(r"Expected: (.*?) but found: (.*?)(?: SQLSTATE|\n|$)", text):
        return f"expected column {found.group(1)!r}, found {found.group(2)!r}"
    if found := re.search(rf"{BAD_HEADER} \S+ Header: (.*?)(?: SQLSTATE|\n|$)", text):
        return f"found {found.group(1)[:80]!r}"
    counted = re.search(r"Header length: (\d+), schema size: (\d+)", text)
    return f"{counted.group(1)} columns for {counted.group(2)}" if counted else "other columns"


def _raised(what: str, text: str) -> str:
    """Return the detail that this package's SQL put after the file's name."""
    found = re.search(rf"{what} \S+ (.*?)(?: SQLSTATE|\n|$)", text)
    return repr(found.group(1)) if found else "of another name"


def _record(text: str) -> str:
    """Return the value, or else the record, that does not fit; as it stands in the file, if Spark reports that."""
    if BAD_RECORD in text:
        return _raised(BAD_RECORD, text)
    for pattern in _VALUES:
        if found := re.search(pattern, text):
            return repr(found.group(1)[:80])
    if found := re.search(r"detected in record parsing: (.*?)\.?\n", text):
        causes = re.findall(r"^Caused by: [\w.$]+: (.*)", text, re.MULTILINE)
        why = f" ({first_line(causes[-1])})" if causes and "record parsing" not in causes[-1] else ""
        return f"{found.group(1)[:80]!r}{why}"
    return "see the file"


def _cause(text: str) -> str:
    for line in text.splitlines():
        found = re.match(r"\s*Caused by: [\w.$]+: (.*)", line)
        if found and "Encountered error" not in line:
            return first_line(found.group(1))
    return first_line(text)
