"""What the preflight found: one result per prerequisite."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """`OK` holds, `WARN` will work but deserves a look, `FAIL` blocks the pipeline."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One prerequisite by name. `detail` is what was found; `fix` the next step, empty when there is none."""

    name: str
    status: CheckStatus
    detail: str
    fix: str = ""
