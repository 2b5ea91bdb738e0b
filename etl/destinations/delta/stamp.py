"""What every commit says about itself: the user metadata that carries a table's watermark, and how it is read back.

A table's history is read from its newest commit down to the one that created it. The commits of others (a manual
OPTIMIZE, say) carry nothing of ours and are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from etl.lsn import Position

_KEY = "etl"


@dataclass(frozen=True, slots=True)
class Stamp:
    """One commit's user metadata. `watermark` is None where the commit changes none; `created` begins a table anew."""

    pipeline_id: int
    oid: int
    epoch: int
    run: int
    watermark: Position | None = None
    created: bool = False

    def text(self) -> str:
        """The JSON that goes into ``commitInfo.userMetadata``."""
        said: dict[str, object] = {
            "pipeline": self.pipeline_id,
            "table": self.oid,
            "epoch": self.epoch,
            "run": self.run,
        }
        if self.watermark is not None:
            said["watermark"] = str(self.watermark)
        if self.created:
            said["created"] = True
        return json.dumps({_KEY: said})


@dataclass(frozen=True, slots=True)
class History:
    """What a piece of history told: the watermark, and whether older commits could tell more."""

    watermark: Position | None
    is_complete: bool


def read_history(newest_first: Iterable[str | None], pipeline_id: int, oid: int) -> History:
    """The watermark of a table from its commits' user metadata: the newest of the newest run.

    A watermark alone is set without a transaction version, so one of an earlier run may come in late and stand on top.
    """
    newest: tuple[int, Position] | None = None
    for text in newest_first:
        said = _ours(text, pipeline_id, oid)
        if said is None:
            continue
        watermark, run = _position(said.get("watermark")), said.get("run")
        if watermark is not None and isinstance(run, int) and (newest is None or run > newest[0]):
            newest = (run, watermark)
        if said.get("created"):
            return History(newest[1] if newest else None, is_complete=True)
    return History(newest[1] if newest else None, is_complete=newest is not None)


def _position(text: object) -> Position | None:
    try:
        return Position.parse(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _ours(text: str | None, pipeline_id: int, oid: int) -> dict[str, object] | None:
    if text is None or _KEY not in text:
        return None
    try:
        said = json.loads(text).get(_KEY)
    except (ValueError, AttributeError):
        return None
    if not isinstance(said, dict) or (said.get("pipeline"), said.get("table")) != (pipeline_id, oid):
        return None
    return said
