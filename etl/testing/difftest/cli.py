"""The command line of the differential tester."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etl.testing.difftest.generator import Plan
from etl.testing.difftest.history import load, save
from etl.testing.difftest.oracle import Finding
from etl.testing.difftest.rounds import Progress, Theatre, Verdict
from etl.testing.difftest.shrink import shrink
from etl.testing.postgres import start_postgres
from etl.testing.warm import WarmEtl


def _into_duckdb(_: Path) -> dict[str, Any]:
    return {}


def _into_delta(directory: Path) -> dict[str, Any]:
    from etl.testing.delta_reader import delta_settings

    return {"destination": delta_settings(directory / "lake")}


_SETTINGS = {"duckdb": _into_duckdb, "delta": _into_delta}


#: So much of a table's name tells which of the shapes it was.
_STEM = len("public.") + 7


@dataclass(slots=True)
class Summary:
    """What all rounds came to."""

    seed: int
    rounds: int = 0
    tables: int = 0
    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    divergences: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, verdict: Verdict) -> None:
        """One more round."""
        self.rounds += 1
        self.tables += verdict.tables
        self.rows += verdict.rows
        self.counts += verdict.counts
        self.kills += verdict.kills

    def as_json(self) -> dict[str, Any]:
        """For a machine."""
        refused = {key: n for key, n in self.counts.items() if key.startswith("refused: ")}
        return {
            "seed": self.seed,
            "rounds": self.rounds,
            **{key.replace(" ", "_"): n for key, n in sorted(self.counts.items()) if key not in refused},
            "tables_compared": self.tables,
            "rows_compared": self.rows,
            "kills": sum(self.kills.values()),
            "kills_by_point": dict(sorted(self.kills.items())),
            "divergences": self.divergences,
            "seconds": round(self.seconds, 1),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tester; 0 when nothing diverged, else 1."""
    options = _parser().parse_args(arguments)
    with _theatre(options) as theatre:
        if options.replay:
            verdict = theatre.replay(load(options.replay))
            for finding in verdict.findings:
                print(finding)
            return 1 if verdict.findings else 0
        summary = _soak(theatre, options)
    if options.json:
        print(json.dumps(summary.as_json(), ensure_ascii=False))
    else:
        print(json.dumps(summary.as_json(), ensure_ascii=False, indent=2))
    return 1 if summary.divergences else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("etl-difftest", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first round's; each round adds one")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no round after that; 0: one round")
    parser.add_argument("--rounds", type=int, default=0, help="so many rounds at most")
    parser.add_argument("--destination", choices=["duckdb", "delta"], default="duckdb")
    parser.add_argument("--faults", choices=["none", "kill"], default="none")
    parser.add_argument(
        "--mode", choices=["both", "once", "live"], default="both", help="how the pipeline runs"
    )
    parser.add_argument("--transactions", type=int, default=120, help="in each round")
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument(
        "--findings", type=Path, default=Path("difftest-findings"), help="where they are written"
    )
    parser.add_argument(
        "--shrink", type=int, default=150, metavar="TRIES", help="0: leave findings as they are"
    )
    parser.add_argument("--replay", type=Path, help="a history.jsonl to let happen again")
    parser.add_argument("--json", action="store_true", help="the summary on one line")
    return parser


@contextmanager
def _theatre(options: argparse.Namespace) -> Iterator[Theatre]:
    warm = WarmEtl()
    with tempfile.TemporaryDirectory(prefix="difftest-") as directory, start_postgres(own=True) as server:
        try:
            yield Theatre(server, warm, Path(directory), _SETTINGS[options.destination])
        finally:
            warm.close()


def _soak(theatre: Theatre, options: argparse.Namespace) -> Summary:
    began = time.monotonic()
    summary = Summary(options.seed)
    most = options.rounds or (sys.maxsize if options.minutes else 1)
    seed = options.seed
    while summary.rounds < most:
        if options.minutes and time.monotonic() - began > 60 * options.minutes:
            break
        verdict = theatre.play(_plan(options, seed), _progress(seed))
        summary.add(verdict)
        if verdict.findings:
            summary.divergences.append(_written(theatre, options, seed, verdict))
        summary.seconds = time.monotonic() - began
        _tell(seed, verdict, summary)
        seed += 1
    return summary


def _plan(options: argparse.Namespace, seed: int) -> Plan:
    return Plan(
        seed=seed,
        transactions=options.transactions,
        # the last round but one of each four has one session: its histories are the easiest to read
        sessions=1 if seed % 4 == 3 else options.sessions,
        kills=options.faults == "kill",
        live=options.mode == "live" or (options.mode == "both" and seed % 2 == 0),
    )


def _written(theatre: Theatre, options: argparse.Namespace, seed: int, verdict: Verdict) -> dict[str, Any]:
    folder = options.findings / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    save(verdict.history, folder / "history.jsonl")
    (folder / "findings.txt").write_text("".join(f"{finding}\n" for finding in verdict.findings))
    first = verdict.findings[0]
    told = {"seed": seed, "table": first.table, "kind": first.kind, "folder": str(folder)}
    if not options.shrink:
        return told
    short = shrink(verdict.history, lambda entries: _same(first, theatre.replay(entries)), options.shrink)
    save(short, folder / "short.jsonl")
    return {**told, "entries": len(verdict.history), "short": len(short)}


def _same(finding: Finding, verdict: Verdict) -> bool:
    """The same kind of fault of the same table, whose name may have grown on the way."""
    return any(
        other.kind == finding.kind and other.table[:_STEM] == finding.table[:_STEM]
        for other in verdict.findings
    )


def _progress(seed: int) -> Progress:
    """A line that is written over, on a terminal."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda transactions: print(
        f"\rseed {seed}: {transactions} transactions ", end="", file=sys.stderr, flush=True
    )


def _tell(seed: int, verdict: Verdict, summary: Summary) -> None:
    said = f"{len(verdict.findings)} findings" if verdict.findings else "equal"
    print(
        f"{chr(13) if sys.stderr.isatty() else ''}seed {seed}: {said}; {verdict.counts['transactions']} transactions, {verdict.counts['ddl']} DDL,"
        f" {sum(verdict.kills.values())} kills, {verdict.tables} tables, {verdict.seconds:.1f} s"
        f" (in all {summary.rounds} rounds, {len(summary.divergences)} diverged)",
        file=sys.stderr,
        flush=True,
    )
