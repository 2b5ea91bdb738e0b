"""The values of rows older than a column, as the stream carries them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from etl.destinations.missing_values import missing_values
from etl.schema.types import ArrayForm, NumericForm, TypeOptions, arrow_type
from etl.testing.builders import BOOL, INT4, JSONB, NUMERIC, NUMERIC_10_2, TEXT, column

INT4_ARRAY = 1007
AS_TEXT = TypeOptions(numeric=NumericForm.TEXT, arrays=ArrayForm.TEXT)


def value(oid: int, missing: str | None, typmod: int = -1, options: TypeOptions | None = None) -> Any:
    carried = arrow_type(oid, typmod, options or TypeOptions())
    rows = missing_values(
        [column("v", 1, oid, typmod=typmod, missing_value=missing)], pa.schema({"v": carried})
    )
    assert (rows.num_rows, rows.schema.types) == (1, [carried])
    return rows["v"][0].as_py()


@pytest.mark.parametrize(
    ("oid", "typmod", "text", "expected"),
    [
        (INT4, -1, "7", 7),
        (BOOL, -1, "t", True),
        (TEXT, -1, "", ""),
        (NUMERIC, NUMERIC_10_2, "1.50", Decimal("1.50")),
        (NUMERIC, -1, "1.50", "1.50"),
        (JSONB, -1, '{"a": 1}', '{"a": 1}'),
        (INT4_ARRAY, -1, "{1,NULL}", [1, None]),
        (INT4, -1, None, None),
    ],
)
def test_a_missing_value_is_carried_as_any_other(oid: int, typmod: int, text: str | None, expected: Any):
    assert value(oid, text, typmod) == expected


@pytest.mark.parametrize(
    ("oid", "typmod", "text"), [(NUMERIC, NUMERIC_10_2, "1.50"), (INT4_ARRAY, -1, "{1,NULL}")]
)
def test_a_pipeline_that_carries_texts_gets_the_text(oid: int, typmod: int, text: str):
    assert value(oid, text, typmod, AS_TEXT) == text


@pytest.mark.parametrize(
    ("oid", "typmod", "text"), [(INT4, -1, "secret"), (INT4, -1, ""), (NUMERIC, NUMERIC_10_2, "NaN")]
)
def test_a_text_that_is_not_the_types_is_no_value(oid: int, typmod: int, text: str):
    assert value(oid, text, typmod) is None


def test_every_column_has_its_own():
    columns = [column("a", 1, INT4, missing_value="1"), column("b", 2), column("c", 5, missing_value="x")]
    carried = pa.schema({"a": pa.int32(), "b": pa.string(), "c": pa.string()})
    assert missing_values(columns, carried).to_pylist() == [{"a": 1, "b": None, "c": "x"}]
