"""The command line as a process: what it loads, how it ends, and what it never prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENGINES = ("duckdb", "pyspark", "delta", "py4j", "psycopg", "pyarrow", "numpy", "structlog", "etl.app")
CANARY = "canary-pw-83c1"
# nobody listens on port 1
PASSWORD = f"host: localhost, port: 1, password: {CANARY}"
DSN = f"dsn: 'postgresql://u:{CANARY}@localhost:1/d'"


def etl(*arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `etl` as a process of its own, with none of this process's variables for libpq or etl."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "ETL"))}
    return subprocess.run(
        [sys.executable, "-m", "etl.cli", *map(str, arguments)],
        env=inherited | environ,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


def pipeline_file(directory: Path, source: str, rest: str = "") -> Path:
    path = directory / "pipeline.yaml"
    path.write_text(
        "pipeline: {id: 1, publication: p}\n"
        f"source: {{{source}}}\n"
        "destination: {type: duckdb, path: out.duckdb}\n"
        f"retry: {{initial_delay_ms: 1, max_attempts: 1}}\n{rest}"
    )
    return path


@pytest.mark.parametrize("arguments", [["--help"], ["replicate", "--help"], ["version"]])
def test_help_and_version_load_no_engine_and_no_driver(arguments: list[str]):
    program = (
        "import sys; from etl.cli.main import app\n"
        f"app({arguments!r}, standalone_mode=False)\n"
        f"print('loaded:', sorted(set(sys.modules) & set({ENGINES!r})))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout.splitlines()[-1] == "loaded: []"


@pytest.mark.parametrize(
    ("verb", "content"),
    [
        (["replicate"], ""),
        (["check"], "pipeline: {"),
        (["status"], "a: !!python/object/apply:os.system [exit]"),
        (["schema", "log", "a.b"], "pipeline: {id: 1}"),
        (["tables", "list"], "pipeline: {id: 1, "),
        (["config", "show"], "soruce: {}"),
        (["destroy", "--yes"], None),
    ],
    ids=["empty", "not YAML", "hostile", "incomplete", "cut off", "mistyped", "missing"],
)
def test_a_wrong_file_ends_a_verb_with_78_and_a_hint(tmp_path: Path, verb: list[str], content: str | None):
    path = tmp_path / "pipeline.yaml"
    if content is not None:
        path.write_text(content)
    result = etl(*verb, "-p", path)

    assert result.returncode == 78
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "hint: " in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments", [["replicate"], ["nonsense"], ["check", "--nonsense"], ["replicate", "x"]]
)
def test_wrong_usage_ends_with_2(arguments: list[str]):
    result = etl(*arguments)

    assert (result.returncode, result.stdout) == (2, "")


@pytest.mark.parametrize(
    ("verb", "source", "code"),
    [
        (["replicate", "--once"], PASSWORD, 75),
        (["replicate", "--once"], DSN, 75),
        (["check"], DSN, 3),
        (["init", "--yes"], PASSWORD, 75),
        (["status"], DSN, 75),
        (["tables", "drop", "a.b", "--yes"], PASSWORD, 75),
        (["destroy", "--yes"], PASSWORD, 75),
        (["config", "show"], DSN, 0),
    ],
)
def test_a_secret_is_never_printed_when_the_source_is_away(
    tmp_path: Path, verb: list[str], source: str, code: int
):
    result = etl(*verb, "-p", pipeline_file(tmp_path, source), "--log-level", "debug")

    assert CANARY not in result.stdout + result.stderr
    assert result.returncode == code, result.stderr


def test_data_goes_to_standard_output_and_nothing_else_does(tmp_path: Path):
    result = etl("config", "show", "-p", pipeline_file(tmp_path, "host: localhost"), "--json")

    assert result.stdout.startswith("{")
    assert result.stderr == ""


def test_a_reader_that_goes_away_is_no_error_of_ours(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-m", "etl.cli", "config", "schema"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        process.wait(timeout=60)
