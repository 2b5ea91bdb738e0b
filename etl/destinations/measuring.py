"""How long the destination takes for what it is given to do: measured by whoever drives it, not by the destination."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from etl.telemetry.metric_names import DestinationCall

#: Gives a context that measures one call.
Measure = Callable[[DestinationCall], AbstractContextManager[None]]


def unmeasured(_: DestinationCall) -> AbstractContextManager[None]:
    """Measures nothing."""
    return nullcontext()
