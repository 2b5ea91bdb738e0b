"""Write docs/reference/metrics.md from the metrics; ``--check`` only compares and exits 1 on a difference."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path

from etl.ddl.operations import SkipReason
from etl.telemetry import metric_names as names
from etl.telemetry.metric_names import (
    ALL_METRICS,
    KNOWN_LABELS,
    OTHER_TABLES,
    TABLE_LABEL_LIMIT,
    BatchStep,
    ChangeOutcome,
    DestinationCall,
    LagStage,
    Metric,
    WalStatus,
)

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference" / "metrics.md"

INTRO = f"""\
# Metrics

<!-- Written by tools/gen_metrics_reference.py from etl/telemetry/metric_names.py; do not edit. -->

`/metrics` of the [HTTP server](configuration.md#http) gives them in the Prometheus text format, or as OpenMetrics to who asks
for it. What to alert on: [Watch it](../how-to/watch-it.md).

Every metric has the label `pipeline`, the pipeline's name. Labels take few values; the label `table` is `schema.name`, and beyond
{TABLE_LABEL_LIMIT} tables the rest share the value `{OTHER_TABLES}`: counters and sizes of theirs are added up there, and
`etl_table_state` leaves them out. A histogram `x` is exposed as `x_bucket`, `x_sum` and `x_count`.

"""


def enumerated(values: type[StrEnum]) -> tuple[str, ...]:
    return tuple(value.value for value in values)


VALUES: dict[tuple[str, str], tuple[str, ...]] = {
    (names.REPLICATION_LAG_BYTES.name, "stage"): enumerated(LagStage),
    (names.REPLICATION_LAG_SECONDS.name, "stage"): enumerated(LagStage),
    (names.SLOT_WAL_STATUS.name, "status"): enumerated(WalStatus),
    (names.BATCH_DURATION_SECONDS.name, "step"): enumerated(BatchStep),
    (names.DESTINATION_DURATION_SECONDS.name, "call"): enumerated(DestinationCall),
    (names.DDL_CHANGES.name, "outcome"): enumerated(ChangeOutcome),
    (names.DDL_SKIPPED_DEFAULTS.name, "reason"): tuple(
        reason.name.lower() for reason in SkipReason if reason.is_of_default
    ),
    (names.TABLE_COPY_RANGES.name, "of"): ("finished", "all"),
} | {(metric.name, metric.labels[0]): values for metric, values in KNOWN_LABELS.items()}


def main() -> int:
    text = render()
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


def render() -> str:
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|", *map(row, ALL_METRICS)]
    return INTRO + "\n".join(lines) + "\n"


def row(metric: Metric) -> str:
    labels = "; ".join(label(metric, name) for name in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


def label(metric: Metric, name: str) -> str:
    values = VALUES.get((metric.name, name))
    return f"`{name}`" if values is None else f"`{name}`: {', '.join(values)}"


if __name__ == "__main__":
    sys.exit(main())
