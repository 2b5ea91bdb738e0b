"""One round: a fresh source, a history, everything brought over, and a verdict."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etl.testing.daemon import HarnessError
from etl.testing.difftest.generator import Generator, Plan
from etl.testing.difftest.history import Entry, History
from etl.testing.difftest.oracle import Finding, Oracle
from etl.testing.difftest.stage import Stage
from etl.testing.difftest.target import DuckDBTarget, Target
from etl.testing.harness import PipelineUnderTest
from etl.testing.postgres import PostgresServer
from etl.testing.warm import WarmEtl

#: Told after each transaction: how many there were in this round.
Progress = Callable[[int], None]


@dataclass(slots=True)
class Verdict:
    """What became of a round. `tables` were compared, with `rows` rows; `seconds` of wall time."""

    history: History
    findings: list[Finding]
    counts: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    tables: int = 0
    rows: int = 0
    seconds: float = 0.0


class Theatre:
    """A server and a warm process that many rounds share; `directory` is theirs alone."""

    def __init__(
        self,
        server: PostgresServer,
        warm: WarmEtl,
        directory: Path,
        settings: Callable[[Path], dict[str, Any]] = lambda _: {},
    ) -> None:
        """`settings`: the pipeline's, for the folder of a round."""
        self._server = server
        self._warm = warm
        self._directory = directory
        self._settings = settings

    def play(self, plan: Plan, progress: Progress = lambda _: None) -> Verdict:
        """Make a history up and judge it."""
        with self._stage() as stage:
            began = time.monotonic()
            try:
                for transactions in Generator(plan, stage).run():
                    progress(transactions)
            except HarnessError as error:
                stage.complaints.append(str(error))
            return self._judge(stage, began)

    def replay(self, entries: Sequence[Entry]) -> Verdict:
        """Let a recorded history happen again and judge it."""
        with self._stage() as stage:
            began = time.monotonic()
            try:
                stage.replay(entries)
            except HarnessError as error:
                stage.complaints.append(str(error))
            return self._judge(stage, began)

    @contextmanager
    def _stage(self) -> Iterator[Stage]:
        directory = Path(tempfile.mkdtemp(dir=self._directory, prefix="round-"))
        try:
            with self._server.database() as database:
                stage = Stage(database, directory, self._warm, self._settings(directory))
                try:
                    yield stage
                finally:
                    stage.close()
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    @staticmethod
    def _judge(stage: Stage, began: float) -> Verdict:
        verdict = Verdict(list(stage.history), [], stage.counts, stage.kills)
        try:
            stage.settle()
        except HarnessError as error:
            stage.complaints.append(str(error))
        verdict.findings += [Finding("pipeline", "complaint", text) for text in stage.complaints]
        if stage.pipeline.warehouse.exists():
            with stage.pipeline.database.connect() as connection, _target(stage.pipeline) as target:
                oracle = Oracle(
                    connection, target, stage.pipeline.pipeline_id, (stage.copied_first, stage.copied_at)
                )
                verdict.findings += oracle.judge()
                verdict.tables, verdict.rows = oracle.compared, oracle.rows
                verdict.counts["tables compared after another copy"] += oracle.loosely
                verdict.counts["tables set aside with reason"] += oracle.excused
        verdict.seconds = time.monotonic() - began
        return verdict


def _target(pipeline: PipelineUnderTest) -> AbstractContextManager[Target]:
    if pipeline.settings.get("destination", {}).get("type") == "delta":
        from etl.testing.difftest.target_delta import DeltaTarget

        return nullcontext(DeltaTarget(pipeline.warehouse))
    return DuckDBTarget.open(pipeline.warehouse)
