"""The numbered SQL files that etl runs in databases: in the wheel as ``etl/_sql``, in a checkout as ``sql/``."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

_NAME = re.compile(r"(\d+)_(\w+)\.sql", re.ASCII)


@dataclass(frozen=True, slots=True)
class SqlFile:
    """One file: its number, the name behind it, its text, and the SHA-256 of its bytes in hex."""

    version: int
    name: str
    text: str
    checksum: str


def sql_files(kind: Literal["source", "store"]) -> list[SqlFile]:
    """All files of one folder, by ascending version.

    Raises `FileNotFoundError` when the installation carries none, `ValueError` when two share a number.
    """
    by_version: dict[int, SqlFile] = {}
    for entry in _folder(kind).iterdir():
        name = _NAME.fullmatch(entry.name)
        if name is None:
            continue
        version = int(name[1])
        if version in by_version:
            raise ValueError(f"two files of sql/{kind} have the number {version}")
        by_version[version] = _read(entry, version, name[2])
    return [by_version[version] for version in sorted(by_version)]


def _read(entry: Traversable, version: int, name: str) -> SqlFile:
    content = entry.read_bytes()
    return SqlFile(version, name, content.decode("utf-8"), hashlib.sha256(content).hexdigest())


def _folder(kind: str) -> Traversable:
    packaged = files("etl") / "_sql" / kind
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "sql" / kind
