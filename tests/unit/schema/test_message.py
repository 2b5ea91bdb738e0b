from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.lsn import SnapshotId
from etl.schema.message import (
    MESSAGE_VERSION,
    SchemaMessage,
    SchemaMessageError,
    parse_schema_message,
    table_schema_from_rows,
)
from etl.schema.table import ReplicaIdentity

Fields = dict[str, Any]


def columns() -> list[Fields]:
    return [
        {
            "attname": "id",
            "attnum": 1,
            "atttypid": 20,
            "typname": "int8",
            "formatted_type": "bigint",
            "atttypmod": -1,
            "attnotnull": True,
            "atthasdef": False,
            "default_expression": None,
            "default_truncated": False,
            "attidentity": "a",
            "atthasmissing": False,
            "missing_value": None,
        },
        {
            "attname": "note",
            "attnum": 3,
            "atttypid": 25,
            "typname": "text",
            "formatted_type": "text",
            "atttypmod": -1,
            "attnotnull": False,
            "atthasdef": True,
            "default_expression": "'n/a'::text",
            "default_truncated": False,
            "attidentity": None,
            "atthasmissing": True,
            "missing_value": "n/a",
        },
    ]


def payload() -> Fields:
    return {
        "version": 1,
        "trigger_event": "ddl_command_end",
        "command_tag": "ALTER TABLE",
        "current_query": "alter table orders add column note text default 'n/a'",
        "current_database": "app",
        "server_version_num": 170004,
        "xid": 5_000_000_815,
        "subxid": 816,
        "nspname": "public",
        "relname": "orders",
        "oid": 16412,
        "relkind": "r",
        "relnatts": 3,
        "commands": [],
        "identity": {
            "primary_key_attnums": [1],
            "primary_key_condeferrable": False,
            "relreplident": "d",
            "replica_identity_index_relname": None,
            "replica_identity_index_attnums": [],
        },
        "columns": columns(),
    }


def parsed(fields: Fields) -> SchemaMessage:
    return parse_schema_message(json.dumps(fields).encode())


def with_(path: str, value: object) -> Fields:
    """The payload with one field, given as a dotted path, set to `value`."""
    fields = payload()
    place: Any = fields
    *way, last = path.split(".")
    for step in way:
        place = place[int(step)] if step.isdigit() else place[step]
    place[last] = value
    return fields


def without(path: str) -> Fields:
    fields = payload()
    place: Any = fields
    *way, last = path.split(".")
    for step in way:
        place = place[int(step)] if step.isdigit() else place[step]
    del place[last]
    return fields


def test_a_message_becomes_the_schema_after_the_statement_under_no_version_yet():
    message = parsed(payload())
    assert (message.oid, message.command_tag, message.version) == (16412, "ALTER TABLE", 1)
    assert (message.xid, message.subxid) == (5_000_000_815, 816)
    assert (message.error, message.is_drop, message.key_is_deferrable) == (None, False, False)
    schema = message.schema
    assert schema is not None
    assert (schema.oid, schema.schema, schema.name, schema.max_attnum) == (16412, "public", "orders", 3)
    assert schema.snapshot_id == SnapshotId.COPY
    assert schema.identity is ReplicaIdentity.DEFAULT
    key, note = schema.columns
    assert (key.name, key.attnum, key.type_oid, key.typmod, key.nullable) == ("id", 1, 20, -1, False)
    assert (key.primary_key_ordinal, key.default_expression, key.type_name) == (1, None, "bigint")
    assert (note.default_expression, note.missing_value, note.nullable) == ("'n/a'::text", "n/a", True)
    assert note.primary_key_ordinal is None


def test_copy_and_stream_build_the_same_schema():
    fields = payload()
    copied = table_schema_from_rows(
        oid=16412,
        schema="public",
        name="orders",
        columns=fields["columns"],
        identity=fields["identity"],
        max_attnum=3,
    )
    assert copied == parsed(fields).schema


def test_columns_are_put_into_attnum_order():
    fields = payload()
    fields["columns"].reverse()
    assert parsed(fields).schema == parsed(payload()).schema


def test_primary_key_ordinals_follow_key_order_and_not_attnum_order():
    schema = parsed(with_("identity.primary_key_attnums", [3, 1])).schema
    assert schema is not None
    assert [c.name for c in schema.primary_key] == ["note", "id"]


def test_a_key_over_a_column_that_is_not_visible_cannot_address_rows():
    schema = parsed(with_("identity.primary_key_attnums", [1, 2])).schema
    assert schema is not None
    assert schema.primary_key == ()


def test_the_columns_of_the_identity_index_are_kept():
    fields = with_("identity.relreplident", "i")
    fields["identity"]["replica_identity_index_attnums"] = [3]
    schema = parsed(fields).schema
    assert schema is not None
    assert (schema.identity, schema.identity_attnums) == (ReplicaIdentity.INDEX, (3,))


def test_a_deferrable_primary_key_is_reported():
    assert parsed(with_("identity.primary_key_condeferrable", True)).key_is_deferrable


def test_a_deferrable_primary_key_addresses_no_rows():
    schema = parsed(with_("identity.primary_key_condeferrable", True)).schema
    assert schema is not None
    assert schema.primary_key == ()


def test_a_truncated_default_is_never_handed_on_to_be_parsed():
    fields = with_("columns.1.default_truncated", True)
    fields["columns"][1]["default_expression"] = "'cut of"
    message = parsed(fields)
    assert message.schema is not None
    assert message.schema.columns[1].default_expression is None
    assert message.truncated_defaults == ("note",)


def test_unknown_fields_are_ignored_wherever_they_stand():
    fields = with_("identity.future", 1)
    fields["future"] = {"any": ["thing"]}
    fields["columns"][0]["future"] = None
    assert parsed(fields) == parsed(payload())


def test_the_contracts_own_fields_are_enough():
    fields = payload()
    for key in ("version", "xid", "subxid", "relnatts", "commands", "relkind"):
        del fields[key]
    del fields["identity"]["primary_key_condeferrable"]
    for row in fields["columns"]:
        del row["default_truncated"], row["missing_value"], row["formatted_type"]
    message = parsed(fields)
    assert (message.version, message.xid, message.subxid) == (0, None, None)
    assert message.schema is not None
    assert message.schema.max_attnum == 0


def test_a_newer_version_asks_to_upgrade_etl():
    with pytest.raises(SchemaMessageError, match="version 99") as caught:
        parsed(with_("version", MESSAGE_VERSION + 98))
    assert "upgrade etl" in caught.value.hint


def test_a_newer_version_is_told_before_anything_else_about_it_is_judged():
    with pytest.raises(SchemaMessageError, match="version 99"):
        parsed({"version": 99})


def test_a_change_the_trigger_could_not_describe_carries_its_error_and_no_schema():
    fields = {k: v for k, v in payload().items() if k in {"version", "xid", "command_tag", "oid"}}
    fields["error"] = {"sqlstate": "40001", "message": "too late"}
    message = parsed(fields)
    assert (message.schema, message.error, message.is_drop) == (None, "too late (SQLSTATE 40001)", False)


def test_an_error_may_be_a_plain_text():
    assert parsed(payload() | {"error": "no room"}).error == "no room"


def test_a_change_of_tables_nobody_could_name_has_oid_zero():
    message = parsed(
        {"version": 1, "xid": 1, "command_tag": "ALTER TABLE", "oid": 0, "error": {"sqlstate": "XX000"}}
    )
    assert message.oid == 0


def test_a_dropped_table_has_no_columns():
    fields = payload() | {"trigger_event": "sql_drop", "command_tag": "DROP TABLE", "columns": []}
    message = parsed(fields)
    assert (message.is_drop, message.schema, message.oid) == (True, None, 16412)


def test_a_table_that_only_lost_a_default_to_a_drop_elsewhere_is_not_dropped():
    message = parsed(payload() | {"trigger_event": "sql_drop", "command_tag": "DROP TABLE"})
    assert not message.is_drop
    assert message.schema is not None


REQUIRED = [
    "oid",
    "command_tag",
    "nspname",
    "relname",
    "identity",
    "columns",
    "identity.primary_key_attnums",
    "identity.relreplident",
    "identity.replica_identity_index_attnums",
    "columns.0.attname",
    "columns.0.attnum",
    "columns.0.atttypid",
    "columns.0.atttypmod",
    "columns.0.attnotnull",
]


@pytest.mark.parametrize("path", REQUIRED)
def test_a_missing_field_is_refused_and_named(path: str):
    with pytest.raises(SchemaMessageError, match=path.rpartition(".")[2]):
        parsed(without(path))


TYPED = [
    *REQUIRED,
    "version",
    "xid",
    "relnatts",
    "columns.1.default_expression",
    "columns.1.default_truncated",
]
WRONG = [True, 1.5, "x", [], {}, -7]


@pytest.mark.parametrize("path", TYPED)
def test_a_field_of_the_wrong_type_is_refused(path: str):
    fields = payload()
    place: Any = fields
    for step in path.split("."):
        place = place[int(step)] if step.isdigit() else place[step]
    for value in WRONG:
        if type(value) is type(place):
            continue
        with pytest.raises(SchemaMessageError):
            parsed(with_(path, value))


@pytest.mark.parametrize("attnum", [0, -1, 1601, 32767, 2**40, True, "1", 1.0, None])
def test_an_attnum_no_table_can_have_is_refused(attnum: object):
    with pytest.raises(SchemaMessageError, match="attnum"):
        parsed(with_("columns.1.attnum", attnum))


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("columns.1.attnum", 1, "attnum stands twice"),
        ("columns.1.attname", "id", "name stands twice"),
        ("relnatts", 2, "beyond relnatts"),
        ("relnatts", 1601, "relnatts"),
        ("oid", 0, "oid"),
        ("oid", 2**32, "oid"),
        ("columns.0.atttypid", 0, "atttypid"),
        ("columns.0.atttypid", 2**32, "atttypid"),
        ("columns.0.atttypmod", -2, "atttypmod"),
        ("columns.0.atttypmod", 2**31, "atttypmod"),
        ("columns.0.attname", "", "attname"),
        ("identity.relreplident", "x", "relreplident"),
        ("identity.primary_key_attnums", [1, 1], "twice"),
        ("identity.primary_key_attnums", [0], "primary_key_attnums"),
        ("identity.primary_key_attnums", [True], "primary_key_attnums"),
        ("columns", [], "columns"),
        ("columns", [1], "columns"),
        ("error", 5, "error"),
    ],
)
def test_a_payload_that_contradicts_itself_or_postgres_is_refused(path: str, value: object, told: str):
    with pytest.raises(SchemaMessageError, match=told):
        parsed(with_(path, value))


def test_sixteen_hundred_columns_are_read():
    template = columns()[0]
    fields = with_("columns", [template | {"attname": f"c{n}", "attnum": n} for n in range(1, 1601)])
    schema = parsed(fields | {"relnatts": 1600}).schema
    assert schema is not None
    assert len(schema.columns) == 1600


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{garbage",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"version": 1e400}',
        b"[" * 100_000,
        b'{"oid": ' + b"9" * 400 + b"}",
    ],
)
def test_what_is_not_a_json_object_is_refused(raw: bytes):
    with pytest.raises(SchemaMessageError):
        parse_schema_message(raw)


def test_an_error_never_repeats_a_default_or_the_statement():
    fields = with_("columns.1.attnum", 1)
    fields["columns"][1]["default_expression"] = "'secret'::text"
    fields["current_query"] = "alter table t set default 'secret'"
    with pytest.raises(SchemaMessageError) as caught:
        parsed(fields)
    assert "secret" not in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(TYPED), json_values)
def test_whatever_a_field_holds_the_message_is_read_or_refused(path: str, value: object):
    _read_or_refuse(lambda: parsed(with_(path, value)))


@given(st.binary(max_size=200))
def test_whatever_the_bytes_are_the_message_is_read_or_refused(raw: bytes):
    _read_or_refuse(lambda: parse_schema_message(raw))


def _read_or_refuse(read: Callable[[], SchemaMessage]) -> None:
    with suppress(SchemaMessageError):
        assert isinstance(read(), SchemaMessage)
