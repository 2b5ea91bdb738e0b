"""How far the triggers see: statements that change a table without being its ALTER TABLE, tables that change along with
another, and drops."""

from __future__ import annotations

import pytest

from tests.contract.trigger_stream import TREE, Source, column, names

# --- other statements (none of them is ALTER TABLE of the table they change) --------------------------------------


@pytest.mark.parametrize("kind", ["VIEW", "MATERIALIZED VIEW", "FOREIGN TABLE"])
def test_a_column_renamed_as_if_the_table_were_something_else_is_logged(source: Source, kind: str):
    source.run(
        "CREATE TABLE t (a int)", "ALTER PUBLICATION p ADD TABLE t", f"ALTER {kind} t RENAME COLUMN a TO b"
    )
    payload = source.message()
    assert names(payload) == ["b"]
    assert payload["command_tag"] == f"ALTER {kind}"


def test_a_table_renamed_as_if_it_were_an_index_is_logged(source: Source):
    source.run("CREATE TABLE t (a int)", "ALTER PUBLICATION p ADD TABLE t", "ALTER INDEX t RENAME TO u")
    assert source.tables() == ["public.u"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("ADD ATTRIBUTE c int CASCADE", ["a", "b", "c"]),
        ("DROP ATTRIBUTE b CASCADE", ["a"]),
        ("RENAME ATTRIBUTE b TO z CASCADE", ["a", "z"]),
        ("ALTER ATTRIBUTE b TYPE varchar(9) CASCADE", ["a", "b"]),
    ],
)
def test_a_change_of_a_composite_type_is_logged_once_for_each_table_of_that_type(
    source: Source, change: str, expected: list[str]
):
    source.run(
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE TABLE one OF pair",
        "CREATE TABLE two OF pair",
        "CREATE TABLE bystander (c int)",
        "ALTER PUBLICATION p ADD TABLE one, two, bystander",
        f"ALTER TYPE pair {change}",
    )
    payloads = source.messages()
    assert [payload["relname"] for payload in payloads] == ["one", "two"]
    assert [names(payload) for payload in payloads] == [expected, expected]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TYPE pair OWNER TO CURRENT_USER",
        "ALTER TYPE pair RENAME TO couple",
        "ALTER TYPE mood ADD VALUE 'so'",
    ],
)
def test_a_change_of_a_type_that_changes_no_column_is_not_logged(source: Source, statement: str):
    source.run(
        "CREATE TYPE pair AS (a int)",
        "CREATE TYPE mood AS ENUM ('good')",
        "CREATE TABLE one OF pair",
        "CREATE TABLE two (m mood)",
        "ALTER PUBLICATION p ADD TABLE one, two",
        statement,
    )
    assert source.messages() == []


def test_a_renamed_schema_is_logged_for_each_of_its_published_tables(source: Source):
    source.run(
        "CREATE SCHEMA s",
        "CREATE TABLE s.a (x int)",
        "CREATE TABLE s.b (x int)",
        "CREATE TABLE s.c (x int)",
        "ALTER PUBLICATION p ADD TABLE s.a, s.b",
        "ALTER SCHEMA s RENAME TO z",
    )
    assert source.tables() == ["z.a", "z.b"]


def test_a_change_under_session_replication_role_replica_is_logged(source: Source):
    source.run(
        "CREATE TABLE t (a int)",
        "ALTER PUBLICATION p ADD TABLE t",
        "SET session_replication_role = replica",
        "ALTER TABLE t ADD COLUMN b int",
    )
    assert names(source.message()) == ["a", "b"]


@pytest.mark.parametrize(
    ("made", "dropped", "tag"),
    [
        ("CREATE TYPE mood AS ENUM ('good')", "DROP TYPE mood CASCADE", "DROP TYPE"),
        ("CREATE DOMAIN mood AS text", "DROP DOMAIN mood CASCADE", "DROP DOMAIN"),
        ("CREATE TYPE mood AS (x int)", "DROP TYPE mood CASCADE", "DROP TYPE"),
        ("CREATE DOMAIN mood AS text", "DROP TYPE mood CASCADE", "DROP TYPE"),
    ],
)
def test_a_column_lost_to_a_drop_of_its_type_is_logged(source: Source, made: str, dropped: str, tag: str):
    source.run(made, "CREATE TABLE t (a int, m mood)", "ALTER PUBLICATION p ADD TABLE t", dropped)
    payload = source.message()
    assert (payload["trigger_event"], payload["command_tag"]) == ("sql_drop", tag)
    assert names(payload) == ["a"]
    assert [command["object_identity"] for command in payload["commands"]] == ["public.t.m"]


def test_a_column_lost_to_a_drop_of_the_schema_of_its_type_is_logged(source: Source):
    source.run(
        "CREATE SCHEMA s",
        "CREATE TYPE s.mood AS ENUM ('good')",
        "CREATE TABLE t (a int, m s.mood)",
        "ALTER PUBLICATION p ADD TABLE t",
        "DROP SCHEMA s CASCADE",
    )
    assert names(source.message()) == ["a"]


def test_a_column_lost_to_a_drop_of_everything_a_role_owns_is_logged(source: Source):
    role = f"owner_{source.database.name}"
    source.run(
        f"CREATE ROLE {role}",
        "CREATE TYPE mood AS ENUM ('good')",
        f"ALTER TYPE mood OWNER TO {role}",
        "CREATE TABLE t (a int, m mood)",
        "ALTER PUBLICATION p ADD TABLE t",
        f"DROP OWNED BY {role} CASCADE",
        f"DROP ROLE {role}",
    )
    assert names(source.message()) == ["a"]


@pytest.mark.parametrize(
    ("made", "default", "dropped"),
    [
        ("CREATE SEQUENCE s", "nextval('s')", "DROP SEQUENCE s CASCADE"),
        (
            "CREATE FUNCTION f() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
            "f()",
            "DROP FUNCTION f() CASCADE",
        ),
        ("CREATE TABLE other (id serial PRIMARY KEY)", "nextval('other_id_seq')", "DROP TABLE other CASCADE"),
        (
            "CREATE TABLE other (id serial PRIMARY KEY, x int)",
            "nextval('other_id_seq')",
            "ALTER TABLE other DROP COLUMN id CASCADE",
        ),
    ],
)
def test_a_default_lost_to_a_drop_of_what_it_needs_is_logged(
    source: Source, made: str, default: str, dropped: str
):
    source.run(
        made,
        f"CREATE TABLE t (a bigint DEFAULT {default})",
        "ALTER PUBLICATION p ADD TABLE t",
        dropped,
    )
    payload = source.message()
    assert payload["relname"] == "t"
    assert column(payload, "a")["atthasdef"] is False


def test_both_triggers_of_one_statement_log_a_table_once(source: Source):
    source.run(
        "CREATE TABLE t (id serial PRIMARY KEY, a int DEFAULT 1, b int)",
        "ALTER PUBLICATION p ADD TABLE t",
        "ALTER TABLE t DROP COLUMN a, DROP COLUMN id CASCADE",
    )
    payload = source.message()
    assert payload["trigger_event"] == "ddl_command_end"
    assert names(payload) == ["b"]


def test_a_drop_that_leaves_published_tables_alone_is_not_logged(source: Source):
    source.run(
        "CREATE TABLE t (a int)",
        "CREATE VIEW v AS SELECT * FROM t",
        "CREATE TEMPORARY TABLE scratch (a int DEFAULT 1)",
        "CREATE TABLE unpublished (a int DEFAULT 1)",
        "ALTER PUBLICATION p ADD TABLE t",
        "DROP VIEW v",
        "DROP TABLE scratch",
        "DROP TABLE unpublished",
        "DROP INDEX IF EXISTS nothing",
    )
    assert source.messages() == []


# --- a table that is gone ---------------------------------------------------------------------------------------


def test_a_dropped_table_is_logged_with_its_last_names_and_no_columns(source: Source):
    source.run("CREATE TABLE t (a int)", "ALTER PUBLICATION p ADD TABLE t")
    oid = source.oid("t")
    source.run("DROP TABLE t")
    payload = source.message()
    assert (payload["command_tag"], payload["trigger_event"]) == ("DROP TABLE", "sql_drop")
    assert (payload["oid"], payload["nspname"], payload["relname"]) == (oid, "public", "t")
    assert payload["columns"] == []


@pytest.mark.parametrize(
    "drop",
    ["DROP SCHEMA s CASCADE", "DROP TYPE pair CASCADE", "DROP TABLE s.t, s.u", "DROP TABLE s.u, s.t CASCADE"],
)
def test_a_table_that_went_with_something_else_is_logged_as_dropped(source: Source, drop: str):
    source.run(
        "CREATE SCHEMA s",
        "CREATE TYPE pair AS (a int)",
        "CREATE TABLE s.t OF pair",
        "CREATE TABLE s.u OF pair",
        "ALTER PUBLICATION p ADD TABLE s.t",
        drop,
    )
    payload = source.message()
    assert (payload["command_tag"], payload["relname"]) == ("DROP TABLE", "t")


@pytest.mark.parametrize("publication", ["FOR ALL TABLES", "FOR TABLES IN SCHEMA s"])
def test_a_dropped_table_of_a_broad_publication_is_logged(source: Source, publication: str):
    if source.connection.info.server_version < 150000 and "SCHEMA" in publication:
        publication = "FOR ALL TABLES"
    source.run(
        "CREATE SCHEMA s", f"CREATE PUBLICATION q {publication}", "CREATE TABLE s.t (a int)", "DROP TABLE s.t"
    )
    assert source.tables() == ["s.t"]


def test_a_table_swapped_for_another_is_told_by_its_oid(source: Source):
    source.run("CREATE TABLE t (a int)", "ALTER PUBLICATION p ADD TABLE t")
    old = source.oid("t")
    with source.connection.transaction():
        source.run(
            "CREATE TABLE t_new (a int, b int)",
            "ALTER PUBLICATION p ADD TABLE t_new",
            "DROP TABLE t",
            "ALTER TABLE t_new RENAME TO t",
        )
    dropped, renamed = source.messages()
    assert (dropped["oid"], dropped["command_tag"]) == (old, "DROP TABLE")
    assert (renamed["oid"], renamed["relname"]) == (source.oid("t"), "t")


# --- partitions and inheritance ---------------------------------------------------------------------------------

CHANGES = [
    "ALTER TABLE root ADD COLUMN c int",
    "ALTER TABLE root DROP COLUMN v",
    "ALTER TABLE root RENAME COLUMN v TO w",
    "ALTER TABLE root ALTER COLUMN v SET DEFAULT 7",
    "ALTER TABLE root ALTER COLUMN v SET NOT NULL",
    "ALTER TABLE root ADD PRIMARY KEY (id)",
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_root_is_logged_for_each_leaf_published_under_its_own_name(
    source: Source, change: str
):
    source.run(*TREE, "ALTER PUBLICATION p ADD TABLE root", change)
    assert source.tables() == ["public.leaf", "public.twig"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_root_published_as_such_is_logged_for_the_root_alone(source: Source, change: str):
    source.run(
        *TREE,
        "ALTER PUBLICATION p ADD TABLE root",
        "ALTER PUBLICATION p SET (publish_via_partition_root = true)",
        change,
    )
    assert source.tables() == ["public.root"]


def test_a_primary_key_dropped_from_the_root_is_logged_for_its_leaves(source: Source):
    source.run(*TREE, "ALTER TABLE root ADD PRIMARY KEY (id)", "ALTER PUBLICATION p ADD TABLE root")
    source.run("ALTER TABLE root DROP CONSTRAINT root_pkey")
    payloads = source.messages()
    assert [payload["relname"] for payload in payloads] == ["leaf", "twig"]
    assert [payload["identity"]["primary_key_attnums"] for payload in payloads] == [[], []]


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE root OWNER TO CURRENT_USER",
        "ALTER TABLE ONLY root ALTER COLUMN v SET DEFAULT 7",
        "ALTER TABLE root ENABLE ROW LEVEL SECURITY",
    ],
)
def test_a_change_of_the_root_that_does_not_reach_its_leaves_is_not_logged_for_them(
    source: Source, change: str
):
    source.run(*TREE, "ALTER PUBLICATION p ADD TABLE root", change)
    assert source.messages() == []


def test_an_attached_partition_is_logged_and_its_siblings_are_not(source: Source):
    source.run(
        *TREE,
        "ALTER PUBLICATION p ADD TABLE root",
        "CREATE TABLE late (extra int, v int, id int NOT NULL)",
        "ALTER TABLE late DROP COLUMN extra",
        "ALTER TABLE root ATTACH PARTITION late FOR VALUES FROM (20) TO (30)",
    )
    payload = source.message()
    assert payload["relname"] == "late"
    assert [entry["attnum"] for entry in payload["columns"]] == [2, 3]


def test_a_change_of_one_leaf_is_logged_for_that_leaf(source: Source):
    source.run(*TREE, "ALTER PUBLICATION p ADD TABLE root", "ALTER TABLE leaf ALTER COLUMN v SET DEFAULT 1")
    assert source.tables() == ["public.leaf"]


def test_inheritance_children_are_logged_with_their_parent(source: Source):
    source.run(
        "CREATE TABLE parent (a int)",
        "CREATE TABLE child (b int) INHERITS (parent)",
        "CREATE TABLE grandchild (c int) INHERITS (child)",
        "ALTER PUBLICATION p ADD TABLE parent",
        "ALTER TABLE parent ADD COLUMN d int",
    )
    payloads = source.messages()
    assert {payload["relname"]: names(payload) for payload in payloads} == {
        "parent": ["a", "d"],
        "child": ["a", "b", "d"],
        "grandchild": ["a", "b", "c", "d"],
    }
