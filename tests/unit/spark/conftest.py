from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

MakeJava = Callable[..., Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Makes a `java` that answers with a version, in a directory as ``JAVA_HOME`` names it, and notes each start."""

    def make(name: str, version: str, *, code: int = 0) -> Path:
        java = tmp_path / name / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(
            "#!/bin/sh\n"
            f"echo started >> '{java}.starts'\n"
            "echo 'Picked up JAVA_TOOL_OPTIONS: -Dname=value' >&2\n"
            f"echo 'openjdk version \"{version}\" 2025-04-15' >&2\n"
            f"exit {code}\n"
        )
        java.chmod(0o755)
        return java

    return make
