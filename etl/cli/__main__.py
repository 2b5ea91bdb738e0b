"""``python -m etl.cli``: the same as ``etl``."""

from __future__ import annotations

from etl.cli.main import app

if __name__ == "__main__":
    app(prog_name="etl")
