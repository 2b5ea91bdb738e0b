"""Databases that are not in UTF-8."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl.testing.harness import PipelineUnderTest
from etl.testing.postgres import PostgresServer


@pytest.mark.parametrize(
    ("encoding", "insert", "expected"),
    [
        ("SQL_ASCII", b"caf\xc3\xa9", "café"),
        ("SQL_ASCII", b"raw\xff", "raw\\xff"),
        ("LATIN1", b"caf\xe9", "café"),
    ],
)
def test_text_of_other_encodings_arrives_as_utf8_and_what_is_no_text_visibly_escaped(
    postgres: PostgresServer, tmp_path: Path, encoding: str, insert: bytes, expected: str
) -> None:
    with postgres.database(encoding=encoding, template="template0", lc_collate="C", lc_ctype="C") as database:
        pipeline = PipelineUnderTest(database, tmp_path)
        pipeline.sql("CREATE TABLE t (id int PRIMARY KEY, a text)")
        pipeline.publish("public.t")

        def add(key: int) -> None:
            with database.connect() as connection:
                connection.execute(f"SET client_encoding = '{encoding}'".encode())
                connection.execute(b"INSERT INTO t VALUES (%d, '%b')" % (key, insert))

        add(1)
        pipeline.once()
        add(2)
        pipeline.once()
        assert sorted(pipeline.rows("public.t")) == [(1, expected), (2, expected)]
