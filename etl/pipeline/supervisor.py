"""Runs a pipeline: owns it, prepares it, streams, and starts again after what may pass by itself.

What an error means is the error's own business (`EtlError.retry`): a TIMED one is waited out with a growing, jittered
delay, any other ends the run. Attempts count from the last durable progress.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
import tenacity

from etl.errors import EtlError, RetryPolicy, SlotLostError, SourceError
from etl.lsn import Lsn
from etl.pipeline.bootstrap import Bootstrap
from etl.pipeline.context import PipelineContext
from etl.pipeline.live import StreamRestart
from etl.pipeline.ownership import Ownership
from etl.pipeline.session import Session
from etl.pipeline.tables import TableBook
from etl.telemetry.pulse import Awaited, Loop, RunPhase, waiting

_log = structlog.get_logger()

#: A bounded run is usually in somebody's script: it gives up instead of waiting for ever.
_BOUNDED_ATTEMPTS = 5


class Supervisor:
    """One pipeline in this process.

    `prepare_source` makes the source ready (trigger, settings) before each attempt; `target` returns the LSN at which a
    bounded run ends, asked once when everything is copied, or None.
    """

    def __init__(
        self,
        context: PipelineContext,
        *,
        prepare_source: Callable[[], None],
        target: Callable[[], Lsn] | None = None,
    ) -> None:
        self._context = context
        self._prepare_source = prepare_source
        self._target_of = target
        self._target: Lsn | None = None
        self._ownership: Ownership | None = None
        self.tables: TableBook | None = None

    def run(self) -> None:
        """Work until stopped or, in a bounded run, until the target. Raises the error that ended it."""
        with self._context.pulse.loop(Loop.MAIN):
            try:
                self._run()
            finally:
                self._context.pulse.enter(RunPhase.STOPPING)
                self._disown()
                self._context.store.close()

    def _run(self) -> None:
        while not self._context.stop.is_set():
            try:
                self._retrying()(self._attempt)
            except _ProgressedError:
                continue
            except EtlError as error:
                if self._context.stop.is_set() and error.retry is RetryPolicy.TIMED:
                    return  # asked to end while waiting for something to pass: a graceful end
                raise
            return

    def _attempt(self) -> None:
        if self._context.stop.is_set():
            return
        self._context.pulse.beat(Loop.MAIN)
        session: Session | None = None
        try:
            ownership = self._own()
            start = Bootstrap(self._context, ownership).run()
            if self._context.stop.is_set():
                return
            session = Session(self._context, ownership, start, self._target_once if self._target_of else None)
            session.run()
        except StreamRestart as restart:
            _log.info("streaming_starts_again", reason="tables left the stream")
            raise _ProgressedError from restart
        except EtlError as error:
            self._report(error)
            if not isinstance(error, SourceError):
                # threads may have ended with it, or what is open may not be what it was
                self._disown()
            if session is not None and self._goes_on(error, session):
                raise _ProgressedError from error
            raise

    def _goes_on(self, error: EtlError, session: Session) -> bool:
        """Whether the next attempt counts as a first one."""
        if isinstance(error, SlotLostError):
            return self._context.config.invalidated_slot_behavior == "recreate"
        return error.retry is RetryPolicy.TIMED and session.advanced

    def _target_once(self) -> Lsn:
        if self._target is None and self._target_of is not None:
            self._target = self._target_of()
        return self._target or Lsn(0)

    def _own(self) -> Ownership:
        """Own the pipeline, then the destination under the new epoch; once per process while the lock holds."""
        self._prepare_source()
        if self._ownership is None:
            epoch = self._context.store.acquire()
            with waiting(Awaited.DESTINATION):
                self._context.destination.open(self._context.pipeline_id, epoch)
            self._ownership = Ownership(self._context, self._attempts)
            self.tables = self._ownership.tables
        return self._ownership

    def _disown(self) -> None:
        """The next attempt opens the destination again, under an epoch of its own."""
        if self._ownership is not None:
            with waiting(Awaited.COPIES):
                self._ownership.close()
            self._ownership = None
        with waiting(Awaited.DESTINATION):
            self._context.destination.close()

    def _report(self, error: EtlError) -> None:
        self._context.metrics.error("apply", error.kind)
        self._context.pulse.failed(error)
        if error.retry is RetryPolicy.TIMED:
            _log.warning("attempt_failed", error_kind=error.kind, error=error.message, hint=error.hint)

    @property
    def _attempts(self) -> int | None:
        """How often in a row something is tried that may pass by itself; None for ever."""
        bounded = _BOUNDED_ATTEMPTS if self._target_of is not None else None
        return self._context.config.retry.max_attempts or bounded

    def _retrying(self) -> tenacity.Retrying:
        retry, attempts = self._context.config.retry, self._attempts
        stop: tenacity.stop.stop_base = tenacity.stop_when_event_set(self._context.stop)
        if attempts is not None:
            stop = stop | tenacity.stop_after_attempt(attempts)
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_timed),
            wait=tenacity.wait_exponential_jitter(
                multiplier=retry.initial_delay_ms / 1000,
                max=retry.max_delay_ms / 1000,
                jitter=retry.initial_delay_ms / 1000,
            ),
            sleep=self._sleep,
            before_sleep=lambda _: self._context.metrics.retry("apply"),
            stop=stop,
            reraise=True,
        )

    def _sleep(self, seconds: float) -> None:
        with waiting(Awaited.NEXT_ATTEMPT):
            self._context.stop.wait(seconds)


class _ProgressedError(Exception):
    """A failed attempt that had made progress: the next one counts as the first."""


def _is_timed(error: BaseException) -> bool:
    return isinstance(error, EtlError) and error.retry is RetryPolicy.TIMED
