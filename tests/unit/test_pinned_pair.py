"""pyspark and delta-spark are pinned as one decision: each accepts the other, as they themselves declare."""

from __future__ import annotations

import tomllib
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import etl

PYPROJECT = Path(etl.__file__).resolve().parents[1] / "pyproject.toml"
DEPENDENCIES = {
    requirement.name: requirement
    for requirement in map(
        Requirement, tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    )
}
DELTA_REQUIRES = {
    requirement.name.replace("_", "-"): requirement
    for requirement in map(Requirement, requires("delta-spark") or ())
}


@pytest.mark.parametrize("name", ["pyspark", "delta-spark", "duckdb"])
def test_an_engine_is_pinned_to_one_version_and_that_one_is_installed(name: str):
    assert str(DEPENDENCIES[name].specifier) == f"=={version(name)}"


@pytest.mark.parametrize("name", sorted(DELTA_REQUIRES))
def test_what_delta_requires_admits_what_is_installed(name: str):
    assert DELTA_REQUIRES[name].specifier.contains(version(name))


def test_a_plain_install_is_held_below_the_importlib_metadata_that_delta_refuses():
    refused = [
        v
        for v in ("8.7.1", "8.8.0", "9.0.0")
        if not DELTA_REQUIRES["importlib-metadata"].specifier.contains(v)
    ]
    assert refused == ["8.8.0", "9.0.0"]
    assert not any(DEPENDENCIES["importlib-metadata"].specifier.contains(v) for v in refused)
