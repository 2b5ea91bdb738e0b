"""``python -m etl.testing.difftest``: rounds until the time is up; what diverges is written down, and made short."""

from __future__ import annotations

import sys

from etl.testing.difftest.cli import main

if __name__ == "__main__":
    sys.exit(main())
