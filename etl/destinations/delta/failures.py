"""What Spark's and Delta's errors mean, by pattern over their text.

Delta's own error classes come through Spark in several wrappings, so the whole text is searched for the condition's
name. An error text may quote a row's value; only the condition's name, and the first line of those about names and
schemas, are passed on.
"""

from __future__ import annotations

import json
import re
from enum import Enum, auto
from typing import Final

from etl.destinations.refusals import table_gone
from etl.errors import (
    DestinationError,
    DestinationFullError,
    DestinationTableError,
    DestinationUnavailableError,
    EtlError,
    error_class,
)


class Failure(Enum):
    """What kind of failure it was, and so what may be done about it."""

    GONE = auto()
    CONFLICT = auto()
    FULL = auto()
    UNREACHABLE = auto()
    REFUSED = auto()
    OTHER = auto()


_MARK: Final = "|etl-error|"
_MARKED: Final = re.compile(f"{re.escape(_MARK)}(.*?){re.escape(_MARK)}")
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_]{3,}(?:\.[A-Z0-9_]+)?)\]")

#: Of names and schemas, raised before a row is read.
_OF_ANALYSIS: Final = frozenset({"AnalysisException", "ParseException"})

#: In this order: the first kind of which one pattern is found decides.
_SIGNS: Final[dict[Failure, tuple[str, ...]]] = {
    Failure.FULL: ("No space left on device", "Disk quota exceeded", "File too large"),
    Failure.CONFLICT: (
        r"Concurrent(?:Append|DeleteRead|DeleteDelete|Write|Transaction|Modification)",
        "DELTA_CONCURRENT_",
        "(?:Metadata|Protocol)ChangedException",
        "DELTA_(?:METADATA|PROTOCOL)_CHANGED",
        "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
    ),
    Failure.GONE: (
        "PATH_NOT_FOUND",
        "DELTA_MISSING_DELTA_TABLE",
        "DELTA_TABLE_NOT_FOUND",
        "DELTA_PATH_DOES_NOT_EXIST",
        "DELTA_TABLE_ONLY_OPERATION",
        "TABLE_OR_VIEW_NOT_FOUND",
        "SCHEMA_NOT_FOUND",
        r"FAILED_READ_FILE\.FILE_NOT_EXIST",
    ),
    Failure.UNREACHABLE: (
        "Py4JNetworkError",
        "Answer from Java side is empty",
        "Connection re(?:fused|set)",
        "SparkContext (?:was|has been) shut ?down",
        "stopped SparkContext",
        r"SparkContext\.dagScheduler\(\)",
        "UNAVAILABLE",
        "Job aborted due to stage failure",
        "TASK_WRITE_FAILED",
        "UnknownHost",
        "timed out",
        "TimeoutException",
        "OutOfMemoryError",
        "INVALID_HANDLE",
    ),
    Failure.REFUSED: ("AnalysisException", "ParseException", "DELTA_[A-Z_]+"),
}
_PATTERNS: Final = {failure: re.compile("|".join(signs)) for failure, signs in _SIGNS.items()}


def failure_of(error: Exception) -> Failure:
    """The kind of an error that Spark raised."""
    if isinstance(error, ConnectionError | EOFError):
        return Failure.UNREACHABLE
    text = f"{type(error).__name__} {_telling(error)}"
    return next((failure for failure, pattern in _PATTERNS.items() if pattern.search(text)), Failure.OTHER)


def marked(error: EtlError) -> str:
    """An error of ours as text that `unmarked` finds again in what Spark says of the task that raised it."""
    told = {
        "class": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "table": error.table,
    }
    return f"{_MARK}{json.dumps(told)}{_MARK}"


def unmarked(text: str) -> EtlError | None:
    """The error of ours that a text tells of, None when it tells of none."""
    match = _MARKED.search(text)
    if match is None:
        return None
    told = json.loads(match[1])
    return error_class(told["class"])(told["message"], hint=told["hint"], table=told["table"])


def _telling(error: Exception) -> str:
    """What may be searched: the text of an analysis quotes names and literals, so of it only the conditions."""
    text = str(error).strip()
    quotes = (
        type(error).__name__ in _OF_ANALYSIS
        and text.startswith("[")
        and not text.startswith("[INTERNAL_ERROR")
    )
    return " ".join(_CONDITION.findall(text.partition("\n")[0])) if quotes else text


def translated(error: Exception, place: str, table: str | None = None) -> DestinationError:
    """The error as etl's own. `table` is the destination table to blame for what is refused."""
    failure, what = failure_of(error), _what(error)
    if failure is Failure.FULL:
        return DestinationFullError(
            f"no space left to write {place}",
            hint="free some space: nothing undurable was acknowledged, and the pipeline goes on by itself",
        )
    if failure is Failure.CONFLICT:
        return DestinationUnavailableError(
            f"another writer changes a table of {place}: {what}",
            hint="the events are written again; stop the other writer if this goes on",
        )
    if failure is Failure.UNREACHABLE:
        return DestinationUnavailableError(
            f"Spark failed on {place}: {what}",
            hint="it is tried again; see the log of Spark, and spark.conf for memory and time limits",
        )
    if failure is Failure.GONE and table is not None:
        return table_gone(table)
    if table is not None:
        return DestinationTableError(
            f"Delta refuses: {what}",
            hint="see the table's schema and properties with DESCRIBE EXTENDED",
            table=table,
        )
    return DestinationError(
        f"Delta refuses on {place}: {what}", hint="report this with the schema change before it"
    )


def _what(error: Exception) -> str:
    text = str(error).strip()
    conditions = _CONDITION.findall(text)
    # wrapped as an internal error, Delta's own condition stands further behind
    name = next(
        (each for each in conditions if each.startswith("DELTA_")), conditions[0] if conditions else ""
    )
    if not name:
        return _java_class(text) or type(error).__name__
    tells_no_value = type(error).__name__ in _OF_ANALYSIS
    first = text.partition("\n")[0].partition(" SQLSTATE")[0]
    return first[:300] if tells_no_value and name in first else name


def _java_class(text: str) -> str:
    """The class of a Java exception, without its message."""
    match = re.search(r"\b((?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error))\b", text)
    return match[1].rpartition(".")[2] if match else ""
