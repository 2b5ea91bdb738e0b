"""``/events``: a line whenever something is another than before (server-sent events, WHATWG HTML, section 9.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import orjson

from etl.http.health import is_ready, readiness
from etl.pipeline.observation import Observation

_POLL_S = 0.25
#: A comment now and then, so that nothing on the way takes the connection for dead.
_KEEPALIVE_S = 15.0


async def changes(look: Callable[[], Observation], is_stopping: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The present state, and again after each change, until the server stops."""
    told: tuple[object, ...] | None = None
    quiet_s = 0.0
    yield b"retry: 2000\n\n"
    while not is_stopping():
        seen = look()
        now = (seen.number, seen.pulse.phase, is_ready(readiness(seen)))
        if now != told:
            told, quiet_s = now, 0.0
            yield _event(seen, ready=now[2])
        elif quiet_s >= _KEEPALIVE_S:
            quiet_s = 0.0
            yield b":\n\n"
        await asyncio.sleep(_POLL_S)
        quiet_s += _POLL_S


def _event(seen: Observation, *, ready: bool) -> bytes:
    lag = seen.lag
    data = {
        "number": seen.number,
        "phase": seen.pulse.phase.value,
        "ready": ready,
        "lag_bytes": None if lag is None else lag.durable_bytes,
        "lag_s": None if lag is None else round(lag.durable_s, 1),
        "rows_per_second": round(seen.total_rates[-1], 1) if seen.total_rates else 0.0,
    }
    return b"id: %d\nevent: change\ndata: %s\n\n" % (seen.number, orjson.dumps(data))
