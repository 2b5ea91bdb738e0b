"""The rooms of etl import in one direction, and the pure core touches nothing but data."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import etl

ROOT = Path(etl.__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
#: What stands beside the layers: test tools, and the SQL that a wheel carries.
BESIDE_THE_LAYERS = {"testing", "_sql"}


def check_contracts(directory: Path) -> subprocess.CompletedProcess[str]:
    linter = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [linter, "--config", directory / "pyproject.toml", "--no-cache"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_contract_holds():
    checked = check_contracts(ROOT)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken" in checked.stdout


@pytest.mark.parametrize(
    ("module", "planted"),
    [
        pytest.param(
            "schema/__init__.py", "from etl.pgoutput import *", id="a lower room imports a higher one"
        ),
        pytest.param("source/__init__.py", "import etl.store", id="a sibling imports its sibling"),
        pytest.param("events/__init__.py", "import time", id="the core reads a clock"),
        pytest.param("ddl/__init__.py", "from os import environ", id="the core reads the environment"),
        pytest.param("pipeline/__init__.py", "import psycopg", id="the pipeline speaks to Postgres itself"),
        pytest.param("source/__init__.py", "import pyspark.sql", id="the source starts Spark"),
        pytest.param(
            "pipeline/__init__.py", "from etl.testing import postgres", id="the product uses test tools"
        ),
    ],
)
def test_a_contract_breaks_when(module: str, planted: str, tmp_path: Path):
    shutil.copytree(ROOT / "etl", tmp_path / "etl", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "etl" / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{planted}\n")

    checked = check_contracts(tmp_path)

    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert "1 broken" in checked.stdout


def test_every_room_has_its_place_in_the_layers():
    layers = next(contract["layers"] for contract in CONTRACTS if contract["type"] == "layers")
    placed = set(re.findall(r"etl\.(\w+)", " ".join(layers)))
    rooms = {
        path.stem
        for path in (ROOT / "etl").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert rooms - {"__init__"} - BESIDE_THE_LAYERS <= placed


def test_every_package_says_what_it_is_for():
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "etl").rglob("__init__.py")
        if not path.read_text(encoding="utf-8").startswith('"""')
    ]
    assert silent == []
