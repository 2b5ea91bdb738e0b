"""The page of metrics is made from them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_reference_is_what_the_metrics_say():
    tool = ROOT / "tools" / "gen_metrics_reference.py"

    assert subprocess.run([sys.executable, str(tool), "--check"], check=False).returncode == 0, (
        "run tools/gen_metrics_reference.py"
    )
