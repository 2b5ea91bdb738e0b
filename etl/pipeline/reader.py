"""The reader: owns the replication connection, moves bytes to the hand-off, and reports positions on time.

Theory of operation. Reading stops when the hand-off is full, reporting never does: the server drops a client that is
silent for ``wal_sender_timeout``, and a write may take longer than that. A report is sent when the server asks, when the
flushed position has moved, and at a third of the server's timeout. To stop, `stop_reading` comes first, so that the
apply worker can finish what it has; `finish` then sends the last position and ends the thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from etl.errors import EtlError
from etl.lsn import Lsn
from etl.pipeline.acknowledger import Acknowledger
from etl.pipeline.handoff import HandOff
from etl.source.replication import ReplicationStream, StreamLsns
from etl.telemetry.metrics import Metrics
from etl.telemetry.pulse import Loop, Pulse

_READ_BYTES = 1 << 20
_TICK_S = 0.1


class Reader(threading.Thread):
    """One thread, one stream. After it ended, `error` says why if it was not asked to."""

    def __init__(  # noqa: PLR0913 - its two ends, and what it tells of itself
        self,
        stream: ReplicationStream,
        handoff: HandOff,
        acknowledger: Acknowledger,
        metrics: Metrics,
        pulse: Pulse,
        *,
        clock: Callable[[], float],
        report_interval_s: float,
        probe_interval_s: float | None = None,
    ) -> None:
        """`probe_interval_s`: ask the server for its position that often while it is quiet (to end a bounded run)."""
        super().__init__(name="reader", daemon=True)
        self.error: Exception | None = None
        self._stream = stream
        self._handoff = handoff
        self._acknowledger = acknowledger
        self._metrics = metrics
        self._pulse = pulse
        self._clock = clock
        self._interval_s = report_interval_s
        self._probe_s = probe_interval_s or report_interval_s
        self._stop_reading = threading.Event()
        self._finish = threading.Event()
        self._reported: Lsn | None = None
        self._reported_at = clock()

    def run(self) -> None:
        """Work until `finish`, or until the stream breaks."""
        try:
            with self._pulse.loop(Loop.READER):
                while not self._finish.is_set():
                    self._pulse.beat(Loop.READER)
                    self.step()
                self._report("shutdown")
        except EtlError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - the apply worker raises it on its own thread
            self.error = error
        finally:
            self._stream.close()
            self._handoff.close()

    def step(self) -> None:
        """Read once if there is room, and report if it is time."""
        if self._stop_reading.is_set():
            self._finish.wait(_TICK_S)
        elif self._handoff.wait_for_room(_TICK_S):
            chunk = self._stream.read(_READ_BYTES, _TICK_S)
            if chunk is not None:
                self._metrics.received(len(chunk.data))
                self._handoff.put(chunk)
                self._metrics.handoff_queue(self._handoff.nbytes)
        else:
            self._metrics.backpressure(_TICK_S)
            self._stream.note_not_reading()
        self._report_if_due()

    def stop_reading(self) -> None:
        """Read no more; keep reporting."""
        self._stop_reading.set()

    def finish(self) -> None:
        """Send the last position and end."""
        self._stop_reading.set()
        self._finish.set()

    def _report_if_due(self) -> None:
        if self._stream.reply_requested:
            self._report("keep_alive")
        elif self._acknowledger.flushed != self._reported:
            self._report("flushed")
        elif self._clock() - self._reported_at >= self._interval_s:
            self._report("periodic")
        elif self._clock() - self._reported_at >= self._probe_s and self._stream.silence_s >= self._probe_s:
            self._report("probe", request_reply=True)

    def _report(self, reason: str, *, request_reply: bool = False) -> None:
        flushed = self._acknowledger.flushed
        request_reply = request_reply or self._stream.silence_s > self._interval_s
        self._stream.send_status(
            StreamLsns(self._acknowledger.received, flushed), request_reply=request_reply
        )
        self._metrics.status_update(reason)
        self._reported, self._reported_at = flushed, self._clock()
