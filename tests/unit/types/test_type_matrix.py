"""The page that tells people of the types says what the code does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_committed_page_is_what_the_registry_and_the_conversion_say():
    tool = ROOT / "tools" / "gen_type_matrix.py"
    check = subprocess.run([sys.executable, str(tool), "--check"], check=False, cwd=ROOT)
    assert check.returncode == 0, "run tools/gen_type_matrix.py"
