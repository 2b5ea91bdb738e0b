"""Write docs/reference/cli.md and the expected help of every verb (tests/unit/cli/golden) from the command line.

``--check`` only compares, names what differs, and exits 1.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from typer.testing import CliRunner

from etl.cli.main import app

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference" / "cli.md"
GOLDEN = ROOT / "tests" / "unit" / "cli" / "golden"

VERBS = (
    "",
    "replicate",
    "check",
    "init",
    "status",
    "tables list",
    "tables pause",
    "tables resume",
    "tables resync",
    "tables retry",
    "tables drop",
    "schema log",
    "config show",
    "config schema",
    "jars fetch",
    "jars list",
    "destroy",
    "version",
)
INTRO = """\
# Command line

<!-- Written by tools/gen_cli_reference.py from the command line itself; do not edit. -->

Data goes to standard output, everything else to standard error. Every verb that reads has `--json`.
`-p` names the pipeline's file (`ETL_PIPELINE` does the same); see [configuration](configuration.md) and
[exit codes](exit-codes.md).
"""
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = [path for path, text in files().items() if not is_current(path, text)]
    for path in stale:
        print(f"{'differs' if check else 'written'}: {path.relative_to(ROOT)}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files()[path], encoding="utf-8")
    return 1 if check and stale else 0


def is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def files() -> dict[Path, str]:
    """What every file must hold."""
    helps = {verb: render_help(verb) for verb in VERBS}
    parts = [f"## `{f'etl {verb}'.strip()}`\n\n```text\n{text}```\n" for verb, text in helps.items()]
    golden = {GOLDEN / f"{verb.replace(' ', '-') or 'etl'}.txt": text for verb, text in helps.items()}
    return {TARGET: "\n".join([INTRO, *parts])} | golden


def render_help(verb: str) -> str:
    """The help as a terminal of 100 columns without colours shows it, blank lines at the edges removed."""
    unset = dict.fromkeys(("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TERMINAL_WIDTH", "ETL_PIPELINE"))
    environment = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"} | unset
    result = CliRunner().invoke(app, [*verb.split(), "--help"], env=environment, prog_name="etl")
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in _ANSI.sub("", result.stdout).splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines).strip()) + "\n"


if __name__ == "__main__":
    sys.exit(main())
