"""Structured logs: one line per fact, JSON for machines or a console for people, and nothing secret in either.

Every record has ``timestamp``, ``level`` and ``event``, a stable snake_case name; the further fields are scalars:
``pipeline``, ``worker``, ``table`` (``schema.name``), ``lsn``, ``xid``, ``batch_id``, ``rows``, ``bytes``,
``duration_s``, ``error_kind``, ``hint``. Records of libraries pass through the same renderer as ``library_logged``
with their text in ``message``. Values of rows are never logged: anything that is not a scalar is shown by its type.
"""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager
from numbers import Integral
from traceback import format_exception, walk_tb
from types import TracebackType
from typing import Any, Literal, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, Processor

from etl.errors import EtlError
from etl.lsn import Lsn, Position, SnapshotId
from etl.telemetry.redaction import MASK, redact

Format = Literal["auto", "json", "console"]

_SECRET_KEYS = frozenset({"password", "secret", "dsn", "conninfo", "token", "passphrase"})
_NOISY_LIBRARIES = ("asyncio", "py4j", "pyspark", "urllib3", "uvicorn.access")
#: Lines of a driver's message that repeat values of rows.
_VALUE_LINES = ("DETAIL:", "CONTEXT:", "LINE ", "QUERY:", "STATEMENT:")


def get_logger() -> structlog.typing.FilteringBoundLogger:
    """The logger; bind fields with `bind`, or for a whole thread with `log_context`."""
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger("etl"))


def log_context(**fields: object) -> AbstractContextManager[None]:
    """Add `fields` to every record of this thread while the context lasts."""
    return structlog.contextvars.bound_contextvars(**fields)


def is_debug() -> bool:
    """True when details that only a developer needs may be shown."""
    return logging.getLogger().level <= logging.DEBUG


def configure_logging(level: str = "info", format: Format = "auto", *, color: bool = True) -> None:  # noqa: A002
    """Set up logging of the process, replacing what was there. Records go to standard error.

    `format` ``auto`` is ``console`` on a terminal and ``json`` otherwise.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    terminal = sys.stderr.isatty()
    as_json = format == "json" or (format == "auto" and not terminal)
    handler = _StandardErrorHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_name_library_record],
            processors=[*_shared_processors(), _renderer(as_json=as_json, color=color and terminal)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    for name in _NOISY_LIBRARIES:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


class _StandardErrorHandler(logging.StreamHandler[TextIO]):
    """Writes to what standard error is at the time of writing: a progress display replaces it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        """The current standard error."""
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        """Ignored: `logging` may assign it."""


def _shared_processors() -> list[Processor]:
    return [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _describe_exception,
        _only_safe_scalars,
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
    ]


def _renderer(*, as_json: bool, color: bool) -> Processor:
    if as_json:
        return structlog.processors.JSONRenderer(serializer=_to_json)
    return structlog.dev.ConsoleRenderer(colors=color)


def _to_json(fields: EventDict, **_: object) -> str:
    first = {key: fields.pop(key) for key in ("timestamp", "level", "event") if key in fields}
    return orjson.dumps({**first, **fields}).decode()


def _name_library_record(_: Any, __: str, fields: EventDict) -> EventDict:
    record: logging.LogRecord = fields["_record"]
    return {**fields, "event": "library_logged", "logger": record.name, "message": fields["event"]}


def _describe_exception(_: Any, __: str, fields: EventDict) -> EventDict:
    """Put the kind, place and, when it is ours, the message of an exception in place of its traceback.

    Messages of foreign exceptions may repeat values of rows: they appear with the traceback, at debug level only.
    """
    error = _exception_of(fields.pop("exc_info", None))
    fields.pop("stack_info", None)
    if error is None:
        return fields
    fields.setdefault("error_kind", error.kind if isinstance(error, EtlError) else type(error).__name__)
    fields.setdefault("error_at", place_of(error))
    if isinstance(error, EtlError):
        for key, value in (
            ("error", error.message),
            ("hint", error.hint),
            ("table", error.table),
            ("lsn", error.lsn),
        ):
            if value:
                fields.setdefault(key, value)
    if is_debug():
        fields["exception"] = render_traceback(error)
    return fields


def _exception_of(exc_info: object) -> BaseException | None:
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return cast("tuple[type[BaseException], BaseException, TracebackType | None]", exc_info)[1]
    return sys.exc_info()[1] if exc_info else None


def place_of(error: BaseException) -> str:
    """``file.py:line function`` where `error` was raised: the innermost place in etl, or else the innermost."""
    places = [
        (frame.f_globals.get("__name__", ""), frame, line) for frame, line in walk_tb(error.__traceback__)
    ]
    ours = [place for place in places if str(place[0]).partition(".")[0] == "etl"]
    if not places:
        return "unknown"
    _, frame, line = (ours or places)[-1]
    code = frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}:{line} {code.co_name}"


def render_traceback(error: BaseException) -> str:
    """The traceback without secrets and without the lines in which databases repeat values."""
    text = "".join(format_exception(error))
    kept = (line for line in text.splitlines() if not line.startswith(_VALUE_LINES))
    return redact("\n".join(kept))


def _only_safe_scalars(_: Any, __: str, fields: EventDict) -> EventDict:
    return {
        key: value if key.startswith("_") else _safe(key, value)
        for key, value in fields.items()
        if value is not None
    }


def _safe(key: str, value: object) -> str | float | bool:
    if key in _SECRET_KEYS:
        return MASK
    if isinstance(value, str | Lsn | Position | SnapshotId):
        return redact(str(value))
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Integral):  # numpy's
        return int(value)
    return f"<{type(value).__name__}>"
