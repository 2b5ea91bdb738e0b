"""Which Java runs Spark: the first that is new enough of JAVA_HOME and PATH."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from etl.errors import SparkSetupError

#: The oldest Java that Spark 4 starts on.
MINIMUM_JAVA = 17

_HINT = (
    f"on Debian and Ubuntu: apt-get install openjdk-{MINIMUM_JAVA}-jre-headless;"
    f" elsewhere install any Java {MINIMUM_JAVA} or newer and let JAVA_HOME name its directory"
)
_ANSWER_TIMEOUT_S = 60


def find_java(environ: Mapping[str, str]) -> Path:
    """The executable `java` of ``JAVA_HOME``, else of ``PATH``, whichever is first new enough; both are run once.

    Raises `SparkSetupError` naming what was looked at and found.
    """
    found = []
    for place, java in _candidates(environ):
        version = _version(java, environ)
        if version is None:
            found.append(f"{place} does not {'start' if java.exists() else 'exist'}")
        elif major_version(version) < MINIMUM_JAVA:
            found.append(f"{place} is version {version}")
        else:
            return java
    if not environ.get("JAVA_HOME"):
        found.insert(0, "JAVA_HOME is not set")
    if shutil.which("java", path=environ.get("PATH", "")) is None:
        found.append("there is no java on PATH")
    raise SparkSetupError(f"Spark needs Java {MINIMUM_JAVA} or newer: {'; '.join(found)}", hint=_HINT)


def parse_version(text: str) -> str | None:
    """The version in what ``java -version`` prints, such as ``17.0.15`` or ``1.8.0_402``; None when there is none."""
    match = re.search(r'\bversion "(\d[^"]*)"', text)
    return match[1] if match else None


def major_version(version: str) -> int:
    """17 of ``17.0.15``, 21 of ``21-ea``, 8 of ``1.8.0_402``: up to Java 8 the second number counted."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    if match is None:
        raise ValueError(version)
    return int(match[1])


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        java = Path(home, "bin", "java")
        yield f"JAVA_HOME's {java}", java
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield f"PATH's {on_path}", Path(on_path)


def _version(java: Path, environ: Mapping[str, str]) -> str | None:
    try:
        answer = subprocess.run(
            [java, "-version"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stderr) if answer.returncode == 0 else None
