"""Our reading of connection strings is libpq's own."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from etl.config.dsn import parse_dsn

TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1, max_size=12)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://",
        "postgres://localhost",
        "postgresql://localhost:5433",
        "postgresql://localhost/mydb",
        "postgresql://user@localhost",
        "postgresql://user:secret@localhost",
        "postgresql://user:p%40ss%2Fword@localhost/db",
        "postgresql://other@localhost/otherdb?connect_timeout=10&application_name=myapp",
        "postgresql://host1:123,host2:456/somedb?target_session_attrs=any",
        "postgresql://[2001:db8::1234]/database",
        "postgresql://[::1]:5433/database",
        "postgresql:///dbname?host=localhost&port=5433",
        "postgresql://%2Fvar%2Flib%2Fpostgresql/dbname",
        "postgresql://u:p@h/d?sslmode=require",
        "postgresql://h/d?ssl=true",
        "host=localhost port=5432 dbname=mydb connect_timeout=10",
        "host = localhost  user='a b' password='it\\'s \\\\ x'",
        "password=a\\ b user=x",
        "service=prod",
        "dbname='' user=x",
        "",
    ],
)
def test_a_connection_string_means_what_libpq_says_it_means(text: str):
    expected = {key: str(value) for key, value in conninfo_to_dict(text).items() if value != ""}

    assert parse_dsn(text) == expected


@given(st.dictionaries(st.sampled_from(["user", "password", "dbname", "host", "options"]), TEXT))
def test_any_value_survives_the_way_through_a_connection_string(parameters: dict[str, str]):
    assert parse_dsn(make_conninfo("", **parameters)) == parameters


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_without_being_repeated(text: str):
    try:
        parse_dsn(text)
    except ValueError as error:
        assert type(error) is ValueError  # noqa: PT017


@pytest.mark.parametrize(
    "text", ["hunter22", "mysql://u:hunter22@h", "password='hunter22", "postgresql://u:x@[::1/d"]
)
def test_what_is_not_a_connection_string_is_refused_as_libpq_does(text: str):
    with pytest.raises(psycopg.ProgrammingError):
        conninfo_to_dict(text)
    with pytest.raises(ValueError, match=r"URI|quote") as caught:
        parse_dsn(text)
    assert "hunter22" not in str(caught.value)
