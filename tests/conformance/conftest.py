"""A destination with slow commits meets a few rows of every long table of cases; ETL_THOROUGH=1 takes all of them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from etl.testing.delta_kit import DeltaKit

#: Rows of one parametrized rule that a slow destination runs by default.
_AT_MOST = 2
HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if DeltaKit.thorough:
        return
    tables: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        is_ours = item.path.parent == HERE and item.get_closest_marker("spark") is not None
        if is_ours and hasattr(item, "callspec"):
            tables[f"{item.parent}::{item.originalname}"].append(item)  # type: ignore[attr-defined] # of pytest.Function
    # the rows in between: the first and the last stay
    left_out = [
        item
        for cases in tables.values()
        for place, item in enumerate(cases)
        if not _is_kept(place, len(cases))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _is_kept(place: int, count: int) -> bool:
    return count <= _AT_MOST or place % -(-(count - 1) // (_AT_MOST - 1)) == 0
