"""Dates and times: days and microseconds since 1970, the same calendar as Postgres, to its last day."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import ValueConversionError
from etl.pgoutput.values import convert
from etl.schema.types import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
)

Raw = Callable[[pa.Array], list[Any]]

DATE, TIME, TIMESTAMP, TIMESTAMPTZ = 1082, 1083, 1114, 1184
DAY = 86_400_000_000
SECOND = 1_000_000


def column(*texts: str | None) -> pa.Array:
    return pa.array([None if t is None else t.encode() for t in texts], pa.binary())


EXACT = [
    ("the epoch", DATE, "1970-01-01", 0),
    ("the day before", DATE, "1969-12-31", -1),
    ("the first day Arrow reads", DATE, "0001-01-01", -719162),
    ("the day before it", DATE, "0001-12-31 BC", -719163),
    ("a leap day before Christ", DATE, "0005-02-29 BC", -720930),
    ("the first day of Postgres", DATE, "4714-11-24 BC", -2440588),
    ("the last day Arrow reads", DATE, "9999-12-31", 2932896),
    ("the day after it", DATE, "10000-01-01", 2932897),
    ("the last day of Postgres", DATE, "5874897-12-31", 2145042905),
    ("infinity", DATE, "infinity", DATE_INFINITY),
    ("minus infinity", DATE, "-infinity", DATE_MINUS_INFINITY),
    ("midnight", TIME, "00:00:00", 0),
    ("the midnight that ends the day", TIME, "24:00:00", DAY),
    ("the last microsecond", TIME, "23:59:59.999999", DAY - 1),
    ("one digit of fraction", TIME, "12:34:56.7", 45296_700000),
    ("six digits of fraction", TIME, "12:34:56.000001", 45296_000001),
    ("the epoch", TIMESTAMP, "1970-01-01 00:00:00", 0),
    ("one digit of fraction", TIMESTAMP, "1970-01-01 00:00:00.1", 100_000),
    ("the microsecond before the epoch", TIMESTAMP, "1969-12-31 23:59:59.999999", -1),
    ("a time before Christ", TIMESTAMP, "0001-12-31 23:59:59.5 BC", -719163 * DAY + 86399_500000),
    ("the first moment of Postgres", TIMESTAMP, "4714-11-24 00:00:00 BC", -2440588 * DAY),
    ("a year of five digits", TIMESTAMP, "10000-01-01 00:00:00", 2932897 * DAY),
    ("the last moment below infinity", TIMESTAMP, "294247-01-10 04:00:54.775806", TIMESTAMP_INFINITY - 1),
    ("infinity", TIMESTAMP, "infinity", TIMESTAMP_INFINITY),
    ("minus infinity", TIMESTAMP, "-infinity", TIMESTAMP_MINUS_INFINITY),
    ("UTC", TIMESTAMPTZ, "1970-01-01 00:00:00.000001+00", 1),
    ("an offset of hours", TIMESTAMPTZ, "1970-01-01 00:00:00-03", 3 * 3600 * SECOND),
    ("an offset with minutes", TIMESTAMPTZ, "1970-01-01 05:30:00+05:30", 0),
    ("an offset with seconds", TIMESTAMPTZ, "1883-11-18 12:03:57-07:52:58", -2717640185 * SECOND),
    ("a time before Christ", TIMESTAMPTZ, "0044-03-15 12:00:00+00 BC", -735160 * DAY + DAY // 2),
    ("infinity", TIMESTAMPTZ, "infinity", TIMESTAMP_INFINITY),
    ("minus infinity", TIMESTAMPTZ, "-infinity", TIMESTAMP_MINUS_INFINITY),
]

PLAIN = {
    DATE: ("2026-01-01", 20454),
    TIME: ("06:00:00", 6 * 3600 * SECOND),
    TIMESTAMP: ("2026-01-01 00:00:00", 20454 * DAY),
    TIMESTAMPTZ: ("2026-01-01 00:00:00+00", 20454 * DAY),
}


@pytest.mark.parametrize(
    ("oid", "text", "expected"), [r[1:] for r in EXACT], ids=[f"{r[1]} {r[0]}" for r in EXACT]
)
def test_the_column_holds_exactly(oid: int, text: str, expected: int, raw: Raw):
    plain, plain_value = PLAIN[oid]
    converted = convert(column(plain, text, None, plain), oid)
    assert raw(converted.array) == [plain_value, expected, None, plain_value]
    assert converted.unrepresentable == ()


BEYOND = [
    (TIMESTAMP, "294276-12-31 23:59:59.999999"),
    (TIMESTAMPTZ, "294276-12-31 23:59:59.999999+00"),
    # finite, but where infinity stands
    (TIMESTAMP, "294247-01-10 04:00:54.775807"),
    (TIMESTAMPTZ, "294247-01-10 04:00:54.775807+00"),
]


@pytest.mark.parametrize(("oid", "text"), BEYOND)
def test_a_finite_moment_at_or_beyond_infinity_is_null_and_reported(oid: int, text: str, raw: Raw):
    plain, plain_value = PLAIN[oid]
    converted = convert(column(plain, text, None, "infinity"), oid)
    assert raw(converted.array) == [plain_value, None, None, TIMESTAMP_INFINITY]
    assert converted.unrepresentable == ((1, text),)


REFUSED = [
    (DATE, "2026-13-01"),
    (DATE, "20260101"),
    (DATE, "01/02/2026"),
    (DATE, "Infinity"),
    (DATE, "2026-01-01 AD"),
    (TIME, "25:00:00"),
    (TIME, "24:00:00.000001"),
    (TIME, "12:60:00"),
    (TIME, "12:00:60"),
    (TIME, "12:00"),
    (TIME, "12:00:00."),
    (TIME, "12:00:00,5"),
    (TIME, "12-00-00"),
    (TIME, "12:00:0a"),
    (TIME, "12:00:00.1234567"),
    (TIMESTAMP, "2026-01-01 12:00:00+00"),
    (TIMESTAMP, "Thu Jan 01 12:00:00 2026"),
    (TIMESTAMP, "10000-01-01"),
    (TIMESTAMPTZ, "2026-01-01 12:00:00"),
    (TIMESTAMPTZ, "2026-01-01 12:00:00 UTC"),
    (TIMESTAMPTZ, "10000-01-01 12:00:00"),
]


@pytest.mark.parametrize(("oid", "text"), REFUSED)
def test_text_postgres_cannot_print_under_our_settings_is_an_error(oid: int, text: str):
    with pytest.raises(ValueConversionError):
        convert(column(text), oid)


def test_duckdb_reads_what_the_columns_hold():
    columns = pa.table(
        {
            "d": convert(column("infinity", "-infinity", "5874897-12-31", "4714-11-24 BC"), DATE).array,
            "t": convert(column("24:00:00", "00:00:00", None, "12:00:00.5"), TIME).array,
            "ts": convert(
                column("infinity", "-infinity", "294247-01-10 04:00:54.775806", None), TIMESTAMP
            ).array,
            "tz": convert(
                column("infinity", "-infinity", "0044-03-15 12:00:00+00 BC", None), TIMESTAMPTZ
            ).array,
        }
    )
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("columns", columns)
        connection.execute("CREATE TABLE stored AS SELECT * FROM columns")
        rows = connection.execute("SELECT d::text, t::text, ts::text, tz::text FROM stored").fetchall()
        late = connection.execute("SELECT count(*) FROM stored WHERE t > TIME '23:59:59.999999'").fetchone()
    assert rows == [
        ("infinity", "24:00:00", "infinity", "infinity"),
        ("-infinity", "00:00:00", "-infinity", "-infinity"),
        ("5874897-12-31", None, "294247-01-10 04:00:54.775806", "0044-03-15 (BC) 12:00:00+00"),
        ("4714-11-24 (BC)", "12:00:00.5", None, None),
    ]
    assert late == (1,)


# --- properties, with Python's own calendar as the oracle -----------------------------------------------------

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SPECIAL = st.sampled_from(
    [("infinity", TIMESTAMP_INFINITY), ("-infinity", TIMESTAMP_MINUS_INFINITY), (None, None)]
)


def fraction(moment: datetime | time) -> str:
    return f".{moment.microsecond:06}".rstrip("0") if moment.microsecond else ""


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


@given(st.lists(st.none() | st.dates()))
def test_any_date_python_knows_is_exact(values: list[date | None]):
    text = column(*(None if v is None else v.isoformat() for v in values))
    assert convert(text, DATE).array.to_pylist() == values


@given(st.lists(st.none() | st.times()))
def test_any_time_python_knows_is_exact(values: list[time | None]):
    text = column(*(None if v is None else f"{v:%H:%M:%S}{fraction(v)}" for v in values))
    assert convert(text, TIME).array.to_pylist() == values


def timestamps_with_text() -> st.SearchStrategy[tuple[str | None, int | None]]:
    moments = st.datetimes().map(
        lambda m: (f"{m.isoformat(' ', 'seconds')}{fraction(m)}", micros(m.replace(tzinfo=UTC)))
    )
    return moments | SPECIAL


@given(st.lists(timestamps_with_text()))
def test_any_timestamp_python_knows_is_exact_also_among_special_ones(
    values: list[tuple[str | None, int | None]],
):
    converted = convert(column(*(text for text, _ in values)), TIMESTAMP)
    assert converted.array.view(pa.int64()).to_pylist() == [value for _, value in values]


def zoned_with_text() -> st.SearchStrategy[tuple[str | None, int | None]]:
    zones = st.integers(-57599, 57599).map(lambda seconds: timezone(timedelta(seconds=seconds)))
    # a day away from the ends of Python's calendar, so that UTC is within it
    moments = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.just(UTC) | zones)  # noqa: DTZ001

    def with_text(moment: datetime) -> tuple[str, int]:
        seconds = int(moment.utcoffset() / timedelta(seconds=1))
        sign, seconds = "-" if seconds < 0 else "+", abs(seconds)
        parts = [f"{seconds // 3600:02}", f"{seconds // 60 % 60:02}", f"{seconds % 60:02}"]
        while len(parts) > 1 and parts[-1] == "00":
            parts.pop()
        local = moment.replace(tzinfo=None)
        return f"{local.isoformat(' ', 'seconds')}{fraction(local)}{sign}{':'.join(parts)}", micros(moment)

    return moments.map(with_text) | SPECIAL


@given(st.lists(zoned_with_text()))
def test_any_moment_in_any_zone_is_exact(values: list[tuple[str | None, int | None]]):
    converted = convert(column(*(text for text, _ in values)), TIMESTAMPTZ)
    assert converted.array.view(pa.int64()).to_pylist() == [value for _, value in values]


@given(st.dates(), st.integers(-11, 14000))
def test_the_calendar_repeats_every_400_years_before_and_beyond_python_s(day: date, cycles: int):
    year = day.year + 400 * cycles
    printed = f"{year:04}" if year > 0 else f"{1 - year:04}"
    text = f"{printed}-{day:%m-%d}{'' if year > 0 else ' BC'}"
    days = (day - date(1970, 1, 1)).days + 146097 * cycles
    assert convert(column(text), DATE).array.view(pa.int32()).to_pylist() == [days]
