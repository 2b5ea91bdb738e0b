"""Reading Arrow columns raw: what they hold, not what Python can make of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest


def raw_values(array: pa.Array) -> list[Any]:
    """The values with dates as days and times as microseconds: Python's own types end at the year 9999."""
    if pa.types.is_list(array.type):
        return [None if not item.is_valid else raw_values(item.values) for item in array]
    if pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    elif pa.types.is_time64(array.type) or pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    return list(array.to_pylist())


@pytest.fixture(scope="session")
def raw() -> Callable[[pa.Array], list[Any]]:
    return raw_values
