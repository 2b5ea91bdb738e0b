"""Figures as people read them, and reports as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum

from etl.lsn import Lsn, Position, SnapshotId


def human_bytes(count: int | None) -> str:
    """``12.3 MiB``; empty when unknown."""
    if count is None:
        return ""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_count(count: int) -> str:
    """``3.1M``."""
    size = float(count)
    for unit in ("", "k", "M"):
        if abs(size) < 1000:
            return f"{size:.1f}{unit}" if unit else str(count)
        size /= 1000
    return f"{size:,.1f}G"


def human_time(moment: datetime | None) -> str:
    """``2030-01-02 03:04:05 UTC``; empty when unknown."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def human_seconds(seconds: float | None) -> str:
    """``0 s``, ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 3 min``, ``4 d 2 h``; empty when unknown."""
    if seconds is None:
        return ""
    if seconds == 0:
        return "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, unit, smaller, small_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {small_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def printable(text: str, *, keep: str = "") -> str:
    """`text` with control characters spelled out: names come from a database and must not steer a terminal or a page."""
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text
    )


def to_plain(value: object) -> object:
    """What `orjson` takes: positions as their text, dataclasses as objects."""
    if isinstance(value, Lsn | SnapshotId | Position):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value
