from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

MINIMAL = "pipeline: {id: 1, publication: p}\ndestination: {type: duckdb, path: out.duckdb}\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write a pipeline file: the text, completed with the required sections it does not have."""

    def write(text: str = "", *, complete: bool = True) -> Path:
        path = tmp_path / "pipeline.yaml"
        missing = [line for line in MINIMAL.splitlines() if line.partition(":")[0] + ":" not in text]
        path.write_text("\n".join([text.rstrip("\n"), *(missing if complete else [])]).lstrip("\n") + "\n")
        return path

    return write
