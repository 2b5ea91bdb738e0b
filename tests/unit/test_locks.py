"""The locks pin every package by hash and name no address, so that any mirror can serve them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import etl

ROOT = Path(etl.__file__).resolve().parents[1]
RUNTIME, DEV, BUILD = (ROOT / f"requirements{kind}.lock" for kind in ("", "-dev", "-build"))


def entries(lock: Path) -> list[str]:
    """One logical line a package: the pin, its marker and its hashes."""
    text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def pins(lock: Path) -> set[str]:
    return {entry.split(" --hash")[0].strip() for entry in entries(lock)}


@pytest.mark.parametrize("lock", [RUNTIME, DEV, BUILD], ids=lambda lock: lock.name)
class TestEachLock:
    def test_pins_every_package_to_one_version_by_hash(self, lock: Path):
        loose = [
            line for line in entries(lock) if not re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line)
        ]
        assert loose == []

    def test_names_no_address_and_no_option_of_a_machine(self, lock: Path):
        assert re.findall(r"\S*://\S*|^--\S+.*", lock.read_text(encoding="utf-8"), flags=re.MULTILINE) == []


def test_what_runs_in_production_is_what_the_tests_ran_with():
    assert pins(RUNTIME) <= pins(DEV)
    assert pins(BUILD) <= pins(DEV)


def test_every_declared_dependency_is_locked_within_its_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    locked = [Requirement(pin) for pin in pins(DEV)]
    groups = project["dependency-groups"]
    declared = [*project["project"]["dependencies"], *groups["build"], *groups["dev"]]
    for wanted in (Requirement(line) for line in declared if isinstance(line, str)):
        versions = [
            str(pin.specifier).removeprefix("==") for pin in locked if pin.name == wanted.name.lower()
        ]
        assert versions, f"{wanted.name} is not locked"
        assert all(wanted.specifier.contains(version) for version in versions), wanted.name
