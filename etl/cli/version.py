"""``etl version``: what runs here."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import etl
from etl.cli.options import Json, epilog
from etl.cli.output import emit, emit_json
from etl.errors import ExitCode

EPILOG = epilog("etl version", "etl version --json", codes=(ExitCode.OK, ExitCode.USAGE))
_COMPONENTS = ("psycopg", "duckdb", "pyarrow", "pyspark", "delta-spark")


def version(as_json: Json = False) -> None:
    """Show the version of etl, of Python, and of the engines."""
    found = {"etl": etl.__version__, "python": platform.python_version()}
    found |= {name: _installed(name) for name in _COMPONENTS}
    if as_json:
        emit_json(found)
        return
    for name, number in found.items():
        emit(f"{name} {number}")


def _installed(name: str) -> str:
    try:
        return installed_version(name)
    except PackageNotFoundError:
        return "not installed"
