from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from etl.cli import check, config, destroy, init, jars, replicate, schema_log, status, tables, version
from etl.errors import ExitCode

ROOT = Path(__file__).parents[3]
CODES = [value for name, value in vars(ExitCode).items() if name.isupper()]


def test_the_help_of_every_verb_and_the_reference_are_as_recorded():
    tool = ROOT / "tools" / "gen_cli_reference.py"
    result = subprocess.run(
        [sys.executable, str(tool), "--check"], check=False, capture_output=True, text=True
    )

    assert result.returncode == 0, (
        f"look at the difference, then run tools/gen_cli_reference.py:\n{result.stdout}"
    )


def test_every_verb_has_a_recorded_help():
    recorded = {path.stem for path in (Path(__file__).parent / "golden").glob("*.txt")}

    assert recorded == {
        "etl",
        "replicate",
        "check",
        "init",
        "status",
        "tables-list",
        "tables-pause",
        "tables-resume",
        "tables-resync",
        "tables-retry",
        "tables-drop",
        "schema-log",
        "config-show",
        "config-schema",
        "jars-fetch",
        "jars-list",
        "destroy",
        "version",
    }


@pytest.mark.parametrize(
    "epilog",
    [
        replicate.EPILOG,
        check.EPILOG,
        init.EPILOG,
        destroy.EPILOG,
        status.EPILOG,
        tables.LIST_EPILOG,
        tables.PAUSE_EPILOG,
        tables.RESUME_EPILOG,
        tables.RESYNC_EPILOG,
        tables.RETRY_EPILOG,
        tables.DROP_EPILOG,
        schema_log.EPILOG,
        config.SHOW_EPILOG,
        config.SCHEMA_EPILOG,
        jars.FETCH_EPILOG,
        jars.LIST_EPILOG,
        version.EPILOG,
    ],
)
def test_every_verb_shows_examples_and_exit_codes(epilog: str):
    assert "Examples" in epilog
    assert "Exit codes" in epilog
    assert "  0 " in epilog


@pytest.mark.parametrize("document", ["tests/unit/cli/golden/etl.txt", "docs/reference/exit-codes.md"])
def test_every_exit_code_is_documented(document: str):
    words = (ROOT / document).read_text().split()

    assert [code for code in CODES if str(code) not in words] == []
