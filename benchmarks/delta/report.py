"""What was measured, as Markdown and as JSON. Ratios are the point: figures in seconds are of one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from benchmarks.delta.stages import STAGES
from benchmarks.delta.workload import Kind

OURS: Final = "etl"
Key = tuple[str, Kind, int, int]


@dataclass(frozen=True)
class Cell:
    """One engine, one workload, one size of the table and of a batch; one entry of `writes` per batch."""

    engine: str
    kind: Kind
    rows: int
    size: int
    rss_mb: float
    writes: tuple[Mapping[str, Any], ...]

    @property
    def key(self) -> Key:
        """What names the cell."""
        return self.engine, self.kind, self.rows, self.size

    @cached_property
    def per_second(self) -> float:
        """Changes per second, one write after the other."""
        return self.size / float(np.mean([write["wall_s"] for write in self.writes]))

    @cached_property
    def cpu_s(self) -> float:
        """Median CPU seconds of a batch."""
        return float(np.median([write["cpu_s"] for write in self.writes]))

    def visible(self, percentile: float) -> float:
        """Seconds until a batch is committed."""
        return float(np.percentile([write["visible_s"] for write in self.writes], percentile))

    @cached_property
    def shares(self) -> dict[str, float]:
        """Part of the time of all writes that each stage took; empty for the peers."""
        total = sum(write["wall_s"] for write in self.writes)
        known = [write["stages"] for write in self.writes if write["stages"]]
        return {stage: sum(stages[stage] for stages in known) / total for stage in STAGES} if known else {}


def summary(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """One entry per cell."""
    return [
        {
            "engine": cell.engine,
            "workload": cell.kind,
            "table_rows": cell.rows,
            "batch": cell.size,
            "batches": len(cell.writes),
            "changes_per_s": cell.per_second,
            "cpu_s": cell.cpu_s,
            "visible_p50_s": cell.visible(50),
            "visible_p99_s": cell.visible(99),
            "rss_mb": cell.rss_mb,
            "shares": cell.shares,
        }
        for cell in cells
    ]


def print_report(cells: Sequence[Cell]) -> None:
    """Three tables: every cell, ours beside the peers, and what a larger table costs."""
    by_key = {cell.key: cell for cell in cells}
    _print_cells(cells)
    _print_ratios(by_key)
    _print_growth(by_key)


def _print_cells(cells: Sequence[Cell]) -> None:
    head = (
        "workload",
        "table",
        "batch",
        "engine",
        "changes/s",
        "CPU s/batch",
        "visible p50 s",
        "p99 s",
        "RSS MB",
    )
    rows = [
        (
            *_place(cell.kind, cell.rows, cell.size),
            cell.engine,
            f"{cell.per_second:,.0f}",
            f"{cell.cpu_s:.2f}",
            f"{cell.visible(50):.2f}",
            f"{cell.visible(99):.2f}",
            f"{cell.rss_mb:,.0f}",
            *(f"{cell.shares[stage]:.0%}" if cell.shares else "" for stage in STAGES),
        )
        for cell in cells
    ]
    _print_table((*head, *STAGES), rows, words=(0, 3))


def _print_ratios(cells: Mapping[Key, Cell]) -> None:
    peers = sorted({engine for engine, *_ in cells} - {OURS})
    rows = []
    for ours in cells.values():
        if ours.engine != OURS:
            continue
        others = [cells.get((peer, *ours.key[1:])) for peer in peers]
        rows.append(
            (
                *_place(ours.kind, ours.rows, ours.size),
                *(f"{ours.per_second / other.per_second:.2f}" if other else "" for other in others),
                *(f"{other.cpu_s / ours.cpu_s:.2f}" if other and ours.cpu_s else "" for other in others),
            )
        )
    head = (
        "workload",
        "table",
        "batch",
        *(f"÷ {peer}" for peer in peers),
        *(f"CPU, {peer} ÷" for peer in peers),
    )
    print("\nChanges/s of etl by those of a peer, and CPU of a peer by that of etl; above 1 etl does better.")
    _print_table(head, rows, words=(0,))


def _print_growth(cells: Mapping[Key, Cell]) -> None:
    tables = sorted({rows for _, _, rows, _ in cells})
    rows = []
    for (engine, kind, table, size), cell in cells.items():
        small = cells.get((engine, kind, tables[0], size))
        if table != tables[0] and small:
            wall, cpu = small.per_second / cell.per_second, cell.cpu_s / max(small.cpu_s, 0.01)
            rows.append(
                (kind, f"{tables[0]:,} → {table:,}", f"{size:,}", engine, f"{wall:.2f}", f"{cpu:.2f}")
            )
    if rows:
        print("\nWhat a change costs in the larger table, by what it costs in the smaller.")
        _print_table(("workload", "table", "batch", "engine", "time", "CPU"), rows, words=(0, 1, 3))


def _place(kind: Kind, rows: int, size: int) -> tuple[str, str, str]:
    return kind, f"{rows:,}", f"{size:,}"


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int]) -> None:
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    rule = ["-" * width if place in words else "-" * (width - 1) + ":" for place, width in enumerate(widths)]
    print()
    for row in (head, rule, *rows):
        cells = (
            cell.ljust(width) if place in words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print(f"| {' | '.join(cells)} |")
