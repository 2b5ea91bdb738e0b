"""The contract, "For published permanent tables, ETL currently models these ALTER TABLE changes": end to end.

Each test is a sentence of the contract; its story is what happens at the source (tests/stories.py).
"""

from __future__ import annotations

from tests.stories import Outcome, story

ITEMS = ["CREATE TABLE items (id int PRIMARY KEY, a text DEFAULT 'x')", "INSERT INTO items VALUES (1, 'one')"]


# --- the table of changes -------------------------------------------------------------------------------------------


@story(ITEMS, when=["ALTER TABLE items ADD COLUMN b int", "INSERT INTO items VALUES (2, 'two', 22)"])
def test_adding_a_replicated_column_adds_it(outcome: Outcome):
    assert outcome.names("items") == ["id", "a", "b"]
    assert outcome.rows("items") == [(1, "one", None), (2, "two", 22)]


@story(ITEMS, when=["ALTER TABLE items DROP COLUMN a", "INSERT INTO items VALUES (2)"])
def test_dropping_a_replicated_column_drops_it(outcome: Outcome):
    assert outcome.names("items") == ["id"]
    assert outcome.rows("items") == [(1,), (2,)]


@story(ITEMS, when=["ALTER TABLE items RENAME COLUMN a TO b", "INSERT INTO items VALUES (2, 'two')"])
def test_renaming_a_replicated_column_renames_it_and_keeps_its_values(outcome: Outcome):
    assert outcome.names("items") == ["id", "b"]
    assert outcome.rows("items") == [(1, "one"), (2, "two")]


@story(
    ITEMS,
    when=["ALTER TABLE items ALTER COLUMN a SET DEFAULT 'y'", "INSERT INTO items VALUES (2)"],
)
def test_changing_a_replicated_columns_default_changes_it(outcome: Outcome):
    assert outcome.defaults("items") == {"a": "'y'"}
    assert outcome.rows("items") == [(1, "one"), (2, "y")]


@story(ITEMS, when=["ALTER TABLE items ALTER COLUMN a DROP DEFAULT", "INSERT INTO items VALUES (2)"])
def test_dropping_a_replicated_columns_default_removes_it(outcome: Outcome):
    assert outcome.defaults("items") == {}
    assert outcome.rows("items") == [(1, "one"), (2, None)]


@story(
    ["CREATE TABLE items (id int PRIMARY KEY, a text NOT NULL)", "INSERT INTO items VALUES (1, 'one')"],
    when=["ALTER TABLE items ALTER COLUMN a DROP NOT NULL", "INSERT INTO items VALUES (2, NULL)"],
)
def test_drop_not_null_is_detected_but_not_applied_and_null_can_be_written(outcome: Outcome):
    assert outcome.skipped("items") == {("a", "nullability")}
    assert outcome.rows("items") == [(1, "one"), (2, None)]


@story(ITEMS, when=["ALTER TABLE items ALTER COLUMN a SET NOT NULL", "INSERT INTO items VALUES (2, 'two')"])
def test_set_not_null_is_detected_but_not_applied(outcome: Outcome):
    assert outcome.skipped("items") == {("a", "nullability")}
    nullable = outcome.world.read(
        "SELECT is_nullable FROM duckdb_columns() WHERE schema_name = ? AND column_name = 'a'",
        [outcome.schema],
    )
    assert nullable == [(True,)]
    outcome.assert_same("items")


@story(
    [
        "CREATE TABLE items (id int PRIMARY KEY, a text, b int, c int DEFAULT 1)",
        "INSERT INTO items VALUES (1, 'one')",
    ],
    when=[
        (
            "ALTER TABLE items ADD COLUMN d text DEFAULT 'd', DROP COLUMN b, ALTER COLUMN c SET DEFAULT 2,"
            " ALTER COLUMN a SET NOT NULL, ADD COLUMN e int"
        ),
        "INSERT INTO items (id, a, e) VALUES (2, 'two', 5)",
    ],
)
class TestSeveralChangesInOneStatement:
    def test_are_one_schema_snapshot(self, outcome: Outcome):
        assert outcome.messages("items") == 1
        assert outcome.versions("items")[-1] == ["id", "a", "c", "d", "e"]

    def test_are_one_change_at_the_destination(self, outcome: Outcome):
        assert outcome.changes("items") == 1

    def test_are_diffed_into_additions_removals_and_grouped_modifications(self, outcome: Outcome):
        assert outcome.names("items") == ["id", "a", "c", "d", "e"]
        assert outcome.defaults("items") == {"c": "2", "d": "'d'"}
        assert outcome.skipped("items") == {("a", "nullability")}
        assert outcome.rows("items") == [(1, "one", 1, None, None), (2, "two", 2, "d", 5)]


@story(
    ITEMS,
    when=[
        (
            "ALTER TABLE items RENAME COLUMN a TO b",
            "ALTER TABLE items ALTER COLUMN b SET DEFAULT 'z'",
            "INSERT INTO items VALUES (2)",
        )
    ],
)
def test_renaming_a_column_and_changing_its_default_is_one_change_of_one_column(outcome: Outcome):
    # Postgres has no ALTER TABLE that does both: two statements with no row between them are one Relation
    assert outcome.columns("items") == [("id", "INTEGER", None), ("b", "VARCHAR", "'z'")]
    assert outcome.changes("items") == 1
    assert outcome.rows("items") == [(1, "one"), (2, "z")]


# --- what the trigger ignores ---------------------------------------------------------------------------------------


@story(
    ITEMS,
    when=[
        "CREATE TEMP TABLE items (id int PRIMARY KEY, a text)",
        "ALTER TABLE pg_temp.items ADD COLUMN t int",
        "INSERT INTO pg_temp.items VALUES (7, 'seven', 7)",
        "INSERT INTO {schema}.items VALUES (2, 'two')",
    ],
)
def test_temporary_tables_are_ignored(outcome: Outcome):
    assert outcome.messages("items") == 0
    outcome.assert_same("items")


@story(
    [*ITEMS, "CREATE TABLE unpublished (id int PRIMARY KEY)", "CREATE UNLOGGED TABLE unlogged (id int)"],
    when=[
        "ALTER TABLE unpublished ADD COLUMN a int",
        "INSERT INTO unpublished VALUES (1, 1)",
        "ALTER TABLE unlogged ADD COLUMN a int",
        "INSERT INTO items VALUES (2, 'two')",
    ],
    publish=["items"],
)
def test_unpublished_and_unlogged_tables_are_ignored(outcome: Outcome):
    assert outcome.messages("unpublished") == 0
    assert outcome.messages("unlogged") == 0
    assert outcome.tables() == ["items"]
    outcome.assert_same("items")


@story(
    [
        "CREATE TABLE items (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED, a text)",
        "INSERT INTO items VALUES (1, DEFAULT, 'one')",
    ],
    when=[
        "INSERT INTO items VALUES (2, DEFAULT, 'two')",
        "ALTER TABLE items ADD COLUMN h int GENERATED ALWAYS AS (id * 3) STORED",
        "INSERT INTO items (id, a) VALUES (3, 'three')",
        "ALTER TABLE items DROP COLUMN g",
        "ALTER TABLE items ADD COLUMN b int",
        "UPDATE items SET b = 1 WHERE id = 2",
    ],
)
def test_generated_columns_are_ignored(outcome: Outcome):
    assert outcome.names("items") == ["id", "a", "b"]
    assert outcome.rows("items") == [(1, "one", None), (2, "two", 1), (3, "three", None)]


@story(
    [
        "CREATE TABLE items (gone1 int, id int PRIMARY KEY, gone2 int, a text)",
        "ALTER TABLE items DROP COLUMN gone1",
        "INSERT INTO items (id, a) VALUES (1, 'one')",
        "ALTER TABLE items DROP COLUMN gone2",
    ],
    when=["ALTER TABLE items ADD COLUMN b int", "INSERT INTO items VALUES (2, 'two', 2)"],
)
def test_tombstones_of_dropped_columns_are_ignored_and_their_ordinal_positions_stay_taken(outcome: Outcome):
    assert outcome.attnums("items") == {"id": 2, "a": 4, "b": 5}
    outcome.assert_same("items")


# --- limits: what is visible in the snapshot and not interpreted as destination DDL ----------------------------------


@story(
    ["CREATE TABLE items (id int PRIMARY KEY, n int)", "INSERT INTO items VALUES (1, 1)"],
    when=["ALTER TABLE items ALTER COLUMN n TYPE bigint", "INSERT INTO items VALUES (2, 2)"],
)
def test_a_type_change_is_not_interpreted_and_rows_that_fit_keep_flowing(outcome: Outcome):
    assert outcome.types("items") == {"id": "INTEGER", "n": "INTEGER"}
    assert outcome.skipped("items") == {("n", "type")}
    outcome.assert_same("items")


@story(
    ["CREATE TABLE items (id int PRIMARY KEY, n int)", "CREATE TABLE others (id int PRIMARY KEY)"],
    when=[
        "ALTER TABLE items ADD CONSTRAINT positive CHECK (n > 0)",
        "INSERT INTO items VALUES (1, 1)",
        "ALTER TABLE items ADD CONSTRAINT once UNIQUE (n)",
        "INSERT INTO items VALUES (2, 2)",
        "INSERT INTO others VALUES (1), (3)",
        "ALTER TABLE items ADD CONSTRAINT known FOREIGN KEY (id) REFERENCES others NOT VALID",
        "INSERT INTO items VALUES (3, 3)",
        "ALTER TABLE items DROP CONSTRAINT positive, DROP CONSTRAINT once, DROP CONSTRAINT known",
        "INSERT INTO items VALUES (4, 3)",
    ],
)
def test_constraint_changes_are_not_interpreted(outcome: Outcome):
    assert outcome.changes("items") == 0
    outcome.assert_same("items")


@story(
    ["CREATE TABLE items (id int PRIMARY KEY, n int NOT NULL)", "INSERT INTO items VALUES (1, 1)"],
    when=[
        "ALTER TABLE items ALTER COLUMN n ADD GENERATED BY DEFAULT AS IDENTITY (START 50)",
        "INSERT INTO items (id) VALUES (2)",
        "ALTER TABLE items ADD COLUMN m int GENERATED ALWAYS AS IDENTITY (START 70)",
        "INSERT INTO items (id) VALUES (3)",
        "ALTER TABLE items ALTER COLUMN n DROP IDENTITY",
        "INSERT INTO items (id, n) VALUES (4, 4)",
    ],
)
def test_identity_changes_are_not_interpreted_and_the_values_arrive(outcome: Outcome):
    assert outcome.defaults("items") == {}
    assert outcome.rows("items") == [(1, 1, None), (2, 50, None), (3, 51, 72), (4, 4, 73)]


@story(
    ITEMS,
    when=[
        "ALTER TABLE items RENAME TO articles",
        "INSERT INTO articles VALUES (2, 'two')",
        "ALTER TABLE articles ADD COLUMN b int",
        "INSERT INTO articles VALUES (3, 'three', 3)",
    ],
    later=["INSERT INTO articles VALUES (4, 'four', 4)"],
)
def test_a_table_rename_is_outside_the_contract_and_rows_and_column_changes_keep_flowing(outcome: Outcome):
    assert outcome.tables() == ["items"]
    assert outcome.rows("items") == [(1, "one", None), (2, "two", None), (3, "three", 3), (4, "four", 4)]


@story(
    [*ITEMS, "CREATE TABLE twins (id int PRIMARY KEY, a text)", 'CREATE SCHEMA "{schema}_b"'],
    when=[
        (
            "ALTER TABLE items RENAME TO t",
            "ALTER TABLE twins RENAME TO items",
            "ALTER TABLE t RENAME TO twins",
        ),
        "INSERT INTO items VALUES (10, 'into what was twins')",
        'ALTER TABLE twins SET SCHEMA "{schema}_b"',
        "INSERT INTO \"{schema}_b\".twins VALUES (2, 'into what was items')",
    ],
    later=["INSERT INTO items VALUES (11, 'eleven')"],
)
def test_published_tables_that_swap_names_or_move_keep_their_destination_tables(outcome: Outcome):
    assert outcome.rows("items") == [(1, "one"), (2, "into what was items")]
    assert outcome.rows("twins") == [(10, "into what was twins"), (11, "eleven")]


@story(
    [
        "CREATE TABLE items (id int PRIMARY KEY, r real, v varchar(5))",
        "INSERT INTO items VALUES (1, 0.5, 'five')",
    ],
    when=[
        "ALTER TABLE items ALTER COLUMN id TYPE bigint",
        "UPDATE items SET v = 'upd' WHERE id = 1",
        "ALTER TABLE items ALTER COLUMN r TYPE double precision",
        "INSERT INTO items VALUES (2, 0.25, 'two'), (3, 0, 'three')",
        "ALTER TABLE items ALTER COLUMN v TYPE text",
        "INSERT INTO items VALUES (4, 1.5, repeat('long', 100))",
        "DELETE FROM items WHERE id = 3",
        "UPDATE items SET id = 30 WHERE id = 2",
    ],
)
def test_a_type_change_of_a_key_keeps_finding_its_rows(outcome: Outcome):
    assert outcome.logged("old_rows_not_found", "items") == []
    assert outcome.types("items") == {"id": "INTEGER", "r": "FLOAT", "v": "VARCHAR"}
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        "CREATE TABLE created (id int PRIMARY KEY)",
        "INSERT INTO created VALUES (1)",
        "ALTER PUBLICATION etl_pub ADD TABLE created",
        "ALTER TABLE created ADD COLUMN b int DEFAULT 5",
        "INSERT INTO created VALUES (2)",
        "INSERT INTO items VALUES (2, 'two')",
    ],
    later=[
        "INSERT INTO created VALUES (3)",
        "ALTER TABLE created ADD a int",
        "INSERT INTO created VALUES (4, 4, 4)",
    ],
)
def test_a_created_table_is_handled_by_publication_membership_at_the_next_start(outcome: Outcome):
    assert outcome.rows("created") == [(1, 5, None), (2, 5, None), (3, 5, None), (4, 4, 4)]
    outcome.assert_same("items")


@story(
    [*ITEMS, "CREATE TABLE leaving (id int PRIMARY KEY)", "INSERT INTO leaving VALUES (1)"],
    when=[
        "INSERT INTO leaving VALUES (2)",
        "DROP TABLE leaving",
        "INSERT INTO items VALUES (2, 'two')",
    ],
    later=["INSERT INTO items VALUES (3, 'three')"],
)
def test_a_dropped_table_keeps_its_destination_table_with_all_that_was_committed_before(outcome: Outcome):
    assert outcome.rows("leaving") == [(1,), (2,)]
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        "COMMENT ON COLUMN items.a IS 'remark'",
        "CREATE INDEX ON items (a)",
        "GRANT SELECT ON items TO PUBLIC",
        "CREATE VIEW shown AS SELECT * FROM items",
        "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TRIGGER noted BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION noted()",
        "INSERT INTO items VALUES (2, 'two')",
    ],
)
def test_other_ddl_than_alter_table_is_no_schema_change(outcome: Outcome):
    assert outcome.messages("items") == 0
    assert outcome.changes("items") == 0
    outcome.assert_same("items")


# --- the emergency opt-out, and the payload -------------------------------------------------------------------------


@story(
    ITEMS,
    when=[
        "SET supabase_etl.skip_ddl_log = 'true'",
        "ALTER TABLE items ALTER COLUMN a SET DEFAULT 'unseen'",
        "RESET supabase_etl.skip_ddl_log",
        "INSERT INTO items VALUES (2)",
    ],
)
def test_ddl_under_the_skip_setting_is_not_logged(outcome: Outcome):
    assert outcome.messages("items") == 0
    assert outcome.defaults("items") == {"a": "'x'"}
    assert outcome.rows("items") == [(1, "one"), (2, "unseen")]


@story(
    ITEMS,
    when=[
        ("SET LOCAL supabase_etl.skip_ddl_log = 'true'", "ALTER TABLE items SET (fillfactor = 90)"),
        "ALTER TABLE items ADD COLUMN b int",
        "SET supabase_etl.skip_ddl_log = 'banana'",
        "ALTER TABLE items ADD COLUMN c int",
        "INSERT INTO items VALUES (2, 'two', 2, 2)",
    ],
)
def test_the_skip_setting_ends_with_its_session_or_transaction_and_never_breaks_an_alter(outcome: Outcome):
    assert outcome.names("items") == ["id", "a", "b", "c"]
    assert outcome.rows("items") == [(1, "one", None, None), (2, "two", 2, 2)]


@story(
    ITEMS,
    when=[
        "ALTER TABLE items ADD COLUMN b text; INSERT INTO items VALUES (2, 'canary-7f3a', 'two')",
        "INSERT INTO items VALUES (3, 'three', 'three')",
    ],
)
def test_the_statements_text_is_for_debugging_only_and_neither_logged_nor_stored_nor_replayed(
    outcome: Outcome,
):
    assert outcome.rows("items") == [
        (1, "one", None),
        (2, "canary-7f3a", "two"),
        (3, "three", "three"),
    ]
    assert all("canary-7f3a" not in run.log for run in outcome.world.runs)
    stored = outcome.source(
        "SELECT query_to_xml(format('SELECT * FROM etl.%I', relname), true, false, '')::text FROM pg_class"
        " WHERE relnamespace = 'etl'::regnamespace AND relkind = 'r'"
    )
    assert all("canary-7f3a" not in text for (text,) in stored)
