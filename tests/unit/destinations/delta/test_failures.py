"""What an error of Spark means for the pipeline. The texts are Spark's own, cut where the stack traces go on."""

from __future__ import annotations

import pytest

from etl.destinations.delta.failures import Failure, failure_of, marked, translated, unmarked
from etl.errors import (
    DestinationError,
    DestinationFullError,
    DestinationTableError,
    DestinationTableLostError,
    DestinationUnavailableError,
    EtlError,
    RetryPolicy,
    SnapshotOutdatedError,
    SourceUnavailableError,
    ValueConversionError,
)

TRACE = "\n\tat org.apache.spark.sql.execution.QueryExecution$.runCommand(QueryExecution.scala:939)\n\tat java.base/java"


def raised(kind: str, text: str) -> Exception:
    """An error of the class by which Spark's Python raises it, known by its name alone."""
    error: Exception = type(kind, (Exception,), {})(text)
    return error


def java(text: str) -> Exception:
    return raised("Py4JJavaError", f"An error occurred while calling o69.sql.\n: {text}{TRACE}")


SPARK_ERRORS: list[tuple[str, Exception, Failure]] = [
    ("a path without a table", raised("AnalysisException", "[PATH_NOT_FOUND] Path does not exist: /lake/none. SQLSTATE: 42K03"), Failure.GONE),
    ("no such table of a catalog", raised("AnalysisException", "[TABLE_OR_VIEW_NOT_FOUND] The table or view `spark_catalog`.`a`.`b` cannot be found. Verify the spelling and correctness of the schema and catalog.\nSearch path: [`system`.`builtin`]. SQLSTATE: 42P01; line 1 pos 14;"), Failure.GONE),
    ("an ALTER of nothing", raised("AnalysisException", "[DELTA_MISSING_DELTA_TABLE] `/lake/none` is not a Delta table."), Failure.GONE),
    ("a history of nothing", raised("AnalysisException", "[DELTA_TABLE_ONLY_OPERATION] `/lake/none` is not a Delta table. DESCRIBE HISTORY is only supported for Delta tables."), Failure.GONE),
    ("a data file that is gone", java("org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:/lake/t/part-00000.snappy.parquet. File does not exist. SQLSTATE: KD001"), Failure.GONE),
    ("a concurrent MERGE", java("io.delta.exceptions.ConcurrentAppendException: [DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Transaction conflict detected. a concurrent MERGE added data to table delta.`file:/lake/t` committed at version 2."), Failure.CONFLICT),
    ("the same transaction twice", java("io.delta.exceptions.ConcurrentTransactionException: [DELTA_CONCURRENT_TRANSACTION] This error occurs when multiple streaming queries are using the same checkpoint to write into this table."), Failure.CONFLICT),
    ("an ALTER meanwhile", java("io.delta.exceptions.MetadataChangedException: [DELTA_METADATA_CHANGED] MetadataChangedException: The metadata of the Delta table has been changed by a concurrent update."), Failure.CONFLICT),
    ("an ALTER between analysis and write", raised("AnalysisException", "[DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS] The schema of your Delta table has changed in an incompatible way since your DataFrame"), Failure.CONFLICT),
    ("a full disk", java("org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/lake/t. SQLSTATE: 58030" + TRACE + "\nCaused by: java.io.IOException: No space left on device"), Failure.FULL),
    ("a task that cannot write", java("org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to s3a://lake/t. SQLSTATE: 58030"), Failure.UNREACHABLE),
    ("a task without memory", java("org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 412.0 failed 1 times, most recent failure: Lost task 1.0 in stage 412.0 (TID 429) (192.0.2.2 executor driver): java.lang.OutOfMemoryError: Java heap space"), Failure.UNREACHABLE),
    ("a context that ended by itself", java('java.lang.NullPointerException: Cannot invoke "org.apache.spark.scheduler.DAGScheduler.cleanupQueryJobs(long)" because the return value of "org.apache.spark.SparkContext.dagScheduler()" is null'), Failure.UNREACHABLE),
    ("a context that was stopped", java("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."), Failure.UNREACHABLE),
    ("a JVM that was killed", ConnectionRefusedError(111, "Connection refused"), Failure.UNREACHABLE),
    ("a JVM that died while it answered", raised("Py4JNetworkError", "Answer from Java side is empty"), Failure.UNREACHABLE),
    ("a connection that ended", EOFError(), Failure.UNREACHABLE),
    ("a column that is not there", raised("AnalysisException", "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `nope` cannot be resolved. Did you mean one of the following? [`a`, `id`]. SQLSTATE: 42703; line 1 pos 7;\n'Project ['nope]"), Failure.REFUSED),
    ("a column that is there already", raised("AnalysisException", '[FIELD_ALREADY_EXISTS] Cannot add column, because `VALUE` already exists in "STRUCT<id: BIGINT>". SQLSTATE: 42710; line 1 pos 0;'), Failure.REFUSED),
    ("a statement that is none", raised("ParseException", "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'selekt'. SQLSTATE: 42601 (line 1, pos 0)\n\n== SQL ==\nselekt 1\n^^^\n"), Failure.REFUSED),
    ("several rows for one key", raised("UnsupportedOperationException", "[DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE] Cannot perform Merge as multiple source rows matched and attempted to modify the same\ntarget row in the Delta table in possibly conflicting ways."), Failure.REFUSED),
    ("a constraint of somebody else", java("org.apache.spark.sql.delta.schema.DeltaInvariantViolationException: [DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint c (id < 100) violated by row with values:\n - note : secret"), Failure.REFUSED),
    ("a value that is no number", raised("NumberFormatException", "[CAST_INVALID_INPUT] The value 'secret' of the type \"STRING\" cannot be cast to \"INT\" because it is malformed. SQLSTATE: 22018\n== SQL (line 1, position 8) ==\nselect cast('secret' as int)"), Failure.OTHER),
    ("anything else", RuntimeError("secret"), Failure.OTHER),
]  # fmt: skip
IDS = [name for name, _, _ in SPARK_ERRORS]


@pytest.mark.parametrize(("name", "error", "failure"), SPARK_ERRORS, ids=IDS)
def test_spark_says(name: str, error: Exception, failure: Failure):
    assert failure_of(error) is failure


EXPECTED = {
    Failure.FULL: DestinationFullError,
    Failure.CONFLICT: DestinationUnavailableError,
    Failure.UNREACHABLE: DestinationUnavailableError,
    Failure.GONE: DestinationTableLostError,
    Failure.REFUSED: DestinationTableError,
    Failure.OTHER: DestinationTableError,
}


@pytest.mark.parametrize(("name", "error", "failure"), SPARK_ERRORS, ids=IDS)
def test_everything_is_tried_again_but_a_table_that_is_gone(name: str, error: Exception, failure: Failure):
    told = translated(error, "/lake", "public.orders")
    assert type(told) is EXPECTED[failure]
    if isinstance(told, DestinationTableError):
        assert told.table == "public.orders"
    else:
        assert "/lake" in told.message
    assert told.retry is (RetryPolicy.MANUAL if failure is Failure.GONE else RetryPolicy.TIMED)
    assert told.hint


@pytest.mark.parametrize(("name", "error", "failure"), SPARK_ERRORS, ids=IDS)
def test_without_a_table_nobody_is_blamed(name: str, error: Exception, failure: Failure):
    told = translated(error, "/lake")
    assert told.table is None
    assert isinstance(told, DestinationError)
    assert "/lake" in told.message


@pytest.mark.parametrize(("name", "error", "failure"), SPARK_ERRORS, ids=IDS)
def test_no_value_of_a_row_and_no_stack_trace_is_told(name: str, error: Exception, failure: Failure):
    for told in (translated(error, "/lake", "public.orders"), translated(error, "/lake")):
        assert "secret" not in str(told)
        assert "\tat " not in str(told)
        assert len(str(told)) < 800


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SPARK_ERRORS[5][1], "DELTA_CONCURRENT_APPEND.WITHOUT_HINT"),
        (SPARK_ERRORS[12][1], "NullPointerException"),
        (SPARK_ERRORS[17][1], "name `nope` cannot be resolved"),
        (SPARK_ERRORS[20][1], "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"),
        (SPARK_ERRORS[22][1], "CAST_INVALID_INPUT"),
        (
            raised("AnalysisException", "[INTERNAL_ERROR] Cannot find main error class 'DELTA_X' [DELTA_X]"),
            "DELTA_X",
        ),
        (RuntimeError("secret"), "RuntimeError"),
    ],
)
def test_the_condition_is_told_by_name(error: Exception, said: str):
    assert said in translated(error, "/lake", "public.orders").message


@pytest.mark.parametrize(
    "name", ["timed out", "UNAVAILABLE", "No space left on device", "PATH_NOT_FOUND", "Connection refused"]
)
def test_a_name_that_reads_like_a_failure_is_none(name: str):
    text = f"[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `{name}` cannot be resolved. SQLSTATE: 42703;\n'Project ['{name}]"
    assert failure_of(raised("AnalysisException", text)) is Failure.REFUSED


def test_deltas_condition_behind_an_internal_error_decides():
    text = "[INTERNAL_ERROR] Cannot find main error class 'DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS'"
    assert failure_of(raised("AnalysisException", text)) is Failure.CONFLICT


@pytest.mark.parametrize(
    "error",
    [
        SnapshotOutdatedError(
            "table public.a was altered\nin between", hint="it is copied anew", table="public.a"
        ),
        SourceUnavailableError('the "source" is {away}|', hint="it is tried again"),
        ValueConversionError("a text is not one Postgres prints"),
        DestinationFullError("no space left"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_ours_is_found_again_in_what_spark_says_of_a_task(error: EtlError):
    trace = f"Job aborted due to stage failure\nRuntimeError: {marked(error)}\n\tat org.apache.spark\n{marked(error)}"

    found = unmarked(trace)
    assert type(found) is type(error)
    assert found is not None
    assert (found.message, found.hint, found.table) == (error.message, error.hint, error.table)


def test_what_spark_says_of_anything_else_is_no_error_of_ours():
    assert unmarked("Job aborted due to stage failure: RuntimeError: etl-error") is None
