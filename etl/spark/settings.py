"""How Spark is reached and set up, purely: from what was configured to the properties of the session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from etl.config.secrets import looks_secret

_LOG_SETTINGS: Final = Path(__file__).absolute().with_name("log4j2.properties")
#: What Spark remembers of finished work for its UI: it runs for years here, and a MERGE's plan is long.
_RETAINED: Final = {
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "5",
}
#: Properties that are lists of options: what is configured is added to ours and does not replace it.
_JOINED: Final = ("spark.driver.extraJavaOptions", "spark.sql.extensions", "spark.jars")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Which Spark, and any ``spark.*`` property.

    `master` is Spark's own (``local[*]``, ``spark://host:7077``, ``yarn``, ``k8s://…``). `remote` is a Spark Connect
    address (``sc://host:15002``) and takes the place of `master`; the server there brings its own jars and Java.
    """

    master: str = "local[*]"
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether Spark runs inside this process' own JVM."""
        return self.remote is None and self.master.partition("[")[0] == "local"

    @property
    def address(self) -> str:
        """What this Spark is called in messages."""
        return self.remote or self.master


def session_properties(settings: SparkSettings, jars: Sequence[Path]) -> dict[str, str]:
    """The properties of a new session: ours for many small commits, under those that were configured.

    One partition of table metadata, two of shuffled rows and no adaptive planning: a batch is small, and what Spark
    spends on planning and starting tasks is most of what it costs (docs/benchmarks.md).
    """
    ours = {
        "spark.app.name": "etl",
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        **_RETAINED,
        **_meaning(),
    }
    if settings.is_local:
        ours |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # the driver is the executor too; Spark's own 1g is short for a batch of wide rows
            "spark.driver.memory": "2g",
        }
    if settings.remote is None:
        ours["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    else:
        ours = _meaning()
    return ours | _laid_over(ours, settings.conf)


def launch_properties(properties: Mapping[str, str]) -> list[tuple[str, str]]:
    """Those that the JVM is started with; the others, secrets among them, reach it once it runs.

    What the driver's own JVM is made of has to be there from the start, whatever it holds.
    """
    return [
        (name, value)
        for name, value in properties.items()
        if name.startswith("spark.driver.") or not looks_secret(name, value)
    ]


def _meaning() -> dict[str, str]:
    """What decides how values and statements are read; not a matter of speed, and the same on every Spark.

    A name or a default of the source may hold ``${env:…}``: without substitution it means itself.
    """
    return {
        "spark.sql.variable.substitute": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.caseSensitive": "false",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }


def _laid_over(ours: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    joined = {
        name: (" " if name.endswith("Options") else ",").join((ours[name], configured[name]))
        for name in _JOINED
        if name in configured and ours.get(name)
    }
    return {**configured, **joined}
