"""The jars that Spark needs beside its own: which ones, where they lie, and whether they are whole.

`JARS` is the one table of pins. `etl.spark.fetch` downloads what is missing.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from etl.errors import SparkSetupError

JARS_DIR_VARIABLE = "ETL_JARS_DIR"


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar of a Maven repository, pinned; `sha256` is that of the file, in hex."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        """``group:artifact:version``."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """The name it has in a Maven repository, and here."""
        return f"{self.artifact}-{self.version}.jar"


#: All that is needed, not what the jars themselves declare: Delta's kernel and catalog clients stay unused.
#: The version is delta-spark's; the artifact's suffix is the Spark and Scala of pyspark (docs/adr/0009).
JARS = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        "4.4.0",
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        "4.4.0",
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)


class JarState(StrEnum):
    """Whether a jar can be used. A corrupt one has other bytes than those pinned."""

    PRESENT = "present"
    MISSING = "missing"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class JarReport:
    """A pinned jar as it was found; `path` is where it is, or would be."""

    coordinate: str
    sha256: str
    path: Path
    state: JarState


def jars_directory(environ: Mapping[str, str]) -> Path:
    """``ETL_JARS_DIR``, else ``share/etl/jars`` of the Python environment; it need not exist."""
    return Path(environ.get(JARS_DIR_VARIABLE) or Path(sys.prefix, "share", "etl", "jars")).absolute()


def inspect_jars(directory: Path, jars: tuple[Jar, ...] = JARS) -> tuple[JarReport, ...]:
    """Every pinned jar and its state, in the order of the table. Reads every file whole."""
    paths = ((jar, directory / jar.file_name) for jar in jars)
    return tuple(JarReport(jar.coordinate, jar.sha256, path, jar_state(jar, path)) for jar, path in paths)


def find_jars(directory: Path, jars: tuple[Jar, ...] = JARS) -> tuple[Path, ...]:
    """The files to give to Spark as ``spark.jars``.

    Raises `SparkSetupError` naming every jar that is missing or corrupt.
    """
    reports = inspect_jars(directory, jars)
    faults = [f"{report.path.name} is {report.state}" for report in reports if report.state != "present"]
    if faults:
        raise SparkSetupError(
            f"Spark's jars in {directory} are not complete: {', '.join(faults)}", hint="run: etl jars fetch"
        )
    return tuple(report.path for report in reports)


def jar_state(jar: Jar, path: Path) -> JarState:
    """Whether the file at `path` is that jar, byte for byte."""
    digest = sha256_of(path)
    if digest is None:
        return JarState.MISSING
    return JarState.PRESENT if digest == jar.sha256 else JarState.CORRUPT


def sha256_of(path: Path) -> str | None:
    """The checksum of a file in hex; None when there is none. Raises `SparkSetupError` when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SparkSetupError(
            f"{path} cannot be read: {error.strerror}", hint="let the user that runs etl read it"
        ) from error
