"""A destination with slow commits meets a few rows of every long table of cases; ETL_THOROUGH=1 takes all of them."""

from __future__ import annotations

from collections import defaultdict

import pytest

from etl.testing.delta_kit import DeltaKit

#: Rows of one parametrized rule that a slow destination runs by default.
_AT_MOST = 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tables: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        callspec = getattr(item, "callspec", None)
        kit = callspec.params.get("destination_kit") if callspec is not None else None
        if kit is DeltaKit:
            item.add_marker("spark")
            if not DeltaKit.thorough and len(callspec.params) > 1:
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
