from __future__ import annotations

import io
import json
import logging
import threading
import warnings

import numpy as np
import pyarrow as pa
import pytest

from etl.errors import DestinationTableError
from etl.lsn import Lsn, Position
from etl.telemetry.logging import configure_logging, get_logger, log_context
from etl.telemetry.redaction import MASK, register_secret

CANARY = "canary-row-value-55"


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error):
        return error


def records(capture: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    captured = capture.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_a_record_is_one_line_of_json_on_standard_error_when_that_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
):
    configure_logging()
    get_logger().info(
        "batch_written", table="public.t", lsn=Lsn.parse("1/2A"), rows=np.int64(3), duration_s=0.5
    )

    (record,) = records(capsys)
    assert list(record)[:3] == ["timestamp", "level", "event"]
    assert record.pop("timestamp").endswith("Z")  # type: ignore[attr-defined]
    assert record == {
        "level": "info",
        "event": "batch_written",
        "table": "public.t",
        "lsn": "1/2A",
        "rows": 3,
        "duration_s": 0.5,
    }


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("color", "escapes"), [(True, True), (False, False)])
def test_a_terminal_gets_lines_for_people(monkeypatch: pytest.MonkeyPatch, color: bool, escapes: bool):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    configure_logging(color=color)
    get_logger().info("batch_written", rows=3)

    assert "batch_written" in terminal.getvalue()
    assert ("\x1b[" in terminal.getvalue()) is escapes


def test_json_can_be_asked_for_on_a_terminal(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    configure_logging(format="json")
    get_logger().info("batch_written")

    assert json.loads(terminal.getvalue())["event"] == "batch_written"


def test_records_follow_standard_error_when_it_is_replaced(capsys: pytest.CaptureFixture[str]):
    configure_logging()
    replaced = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", replaced)
        get_logger().info("while_bars_are_shown")

    assert "while_bars_are_shown" in replaced.getvalue()
    assert records(capsys) == []


def test_the_level_decides_what_is_logged(capsys: pytest.CaptureFixture[str]):
    configure_logging("warning")
    get_logger().info("left_out")
    logging.getLogger("library").info("left out too")
    get_logger().warning("kept")

    assert [record["event"] for record in records(capsys)] == ["kept"]


def test_context_belongs_to_its_thread_and_ends(capsys: pytest.CaptureFixture[str]):
    configure_logging()
    with log_context(worker="apply"):
        get_logger().info("inside")
        thread = threading.Thread(target=lambda: get_logger().info("elsewhere"))
        thread.start()
        thread.join()
    get_logger().info("after")

    assert [(r["event"], r.get("worker")) for r in records(capsys)] == [
        ("inside", "apply"),
        ("elsewhere", None),
        ("after", None),
    ]


def test_records_of_libraries_pass_through_the_same_renderer(capsys: pytest.CaptureFixture[str]):
    configure_logging()
    logging.getLogger("some.library").warning("hello %s", "there")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old habit", UserWarning, stacklevel=1)

    first, second = records(capsys)
    assert (first["event"], first["logger"], first["message"]) == (
        "library_logged",
        "some.library",
        "hello there",
    )
    assert (second["event"], second["logger"]) == ("library_logged", "py.warnings")


def test_secrets_are_masked_wherever_they_stand(capsys: pytest.CaptureFixture[str]):
    configure_logging()
    register_secret("swordfish-71")
    get_logger().info("connected", detail="with swordfish-71", dsn="anything", password="anything")
    logging.getLogger("library").warning("postgresql://u:other@h/d swordfish-71")
    get_logger().error(
        "failed", exc_info=raised(DestinationTableError("refused swordfish-71", hint="not swordfish-71"))
    )

    text = json.dumps(records(capsys))
    assert "swordfish" not in text
    assert "other" not in text
    assert text.count(MASK) == 7


@pytest.mark.parametrize(
    "value",
    [
        {"name": CANARY},
        [CANARY],
        (CANARY,),
        CANARY.encode(),
        pa.table({"a": [CANARY]}),
        pa.record_batch({"a": [CANARY]}),
        pa.scalar(CANARY),
        np.array([CANARY]),
        ValueError(CANARY),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_may_hold_rows_is_shown_by_its_type_alone(capsys: pytest.CaptureFixture[str], value: object):
    configure_logging("debug")
    get_logger().info("happened", thing=value)

    (record,) = records(capsys)
    assert record["thing"] == f"<{type(value).__name__}>"
    assert CANARY not in json.dumps(record)


def test_our_errors_are_logged_with_kind_place_and_hint_and_without_traceback(
    capsys: pytest.CaptureFixture[str],
):
    configure_logging()
    error = DestinationTableError("it is full", hint="make room", table="public.t", lsn=Lsn(1))
    get_logger().error("table_errored", exc_info=raised(error))

    (record,) = records(capsys)
    assert record["error_kind"] == "destination_table"
    assert (record["error"], record["hint"], record["table"], record["lsn"]) == (
        "it is full",
        "make room",
        "public.t",
        "0/1",
    )
    assert "exception" not in record


@pytest.mark.parametrize("level", ["info", "debug"])
def test_messages_of_foreign_errors_appear_at_debug_level_only(
    capsys: pytest.CaptureFixture[str], level: str
):
    configure_logging(level)
    try:
        int(CANARY)
    except ValueError:
        get_logger().exception("failed")

    (record,) = records(capsys)
    assert record["error_kind"] == "ValueError"
    assert (CANARY in json.dumps(record)) is (level == "debug")


def test_a_drivers_lines_with_values_are_never_shown(capsys: pytest.CaptureFixture[str]):
    configure_logging("debug")
    error = RuntimeError(
        f"duplicate key\nDETAIL:  Key (email)=({CANARY}) exists.\nCONTEXT:  COPY t, line 1: {CANARY}"
    )
    get_logger().error("failed", exc_info=raised(error))

    (record,) = records(capsys)
    assert "duplicate key" in str(record["exception"])
    assert CANARY not in json.dumps(record)


def test_positions_are_text(capsys: pytest.CaptureFixture[str]):
    configure_logging()
    get_logger().info("applied", position=Position(Lsn(1), 2))

    assert records(capsys)[0]["position"] == "0/1#2"
