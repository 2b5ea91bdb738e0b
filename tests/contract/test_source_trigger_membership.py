"""Every way in which a table can be published."""

from __future__ import annotations

import pytest

from tests.contract.trigger_stream import TREE, Source

# --- how a table is published -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("publication", "logged"),
    [
        ("FOR TABLE s.t", ["s.t"]),
        ("FOR ALL TABLES", ["s.t", "s.u"]),
        ("FOR TABLE s.t WITH (publish = 'insert')", ["s.t"]),
        ("", []),
    ],
)
def test_any_publication_counts(source: Source, publication: str, logged: list[str]):
    source.run(
        "CREATE SCHEMA s",
        "CREATE TABLE s.t (a int)",
        "CREATE TABLE s.u (a int)",
        f"CREATE PUBLICATION q {publication}",
        "ALTER TABLE s.t ADD COLUMN b int",
        "ALTER TABLE s.u ADD COLUMN b int",
    )
    assert source.tables() == logged


def test_what_counts_as_published_is_what_postgres_lists_as_published(source: Source):
    """Differential: every shape of membership, against pg_publication_tables."""
    source.run(
        *TREE,
        "CREATE SCHEMA s",
        "CREATE TABLE plain (a int)",
        "CREATE UNLOGGED TABLE unlogged (a int)",
        "CREATE TABLE s.member (a int)",
        "CREATE TABLE s.root (a int) PARTITION BY LIST (a)",
        "CREATE TABLE leaf_elsewhere PARTITION OF s.root FOR VALUES IN (1)",
    )
    members = ["plain", "root", "branch", "leaf", "branch, twig", "s.root"]
    # before 15 the view lists a partition beside its root, though its rows are sent as the root's
    nested = ["root, branch", "root, leaf"] if source.connection.info.server_version >= 150000 else []
    clauses = [
        f"FOR TABLE {tables} WITH (publish_via_partition_root = {via_root})"
        for tables in members + nested
        for via_root in ("true", "false")
    ]
    clauses += [
        f"FOR ALL TABLES WITH (publish_via_partition_root = {via_root})" for via_root in ("true", "false")
    ]
    if source.connection.info.server_version >= 150000:
        clauses += [
            f"FOR TABLES IN SCHEMA {schema} WITH (publish_via_partition_root = {via_root})"
            for schema in ("public", "s", "public, s")
            for via_root in ("true", "false")
        ]
    everything = "SELECT array_agg(oid) FROM pg_class WHERE relkind IN ('r', 'p', 'v')"
    for clause in clauses:
        source.run(f"CREATE PUBLICATION q {clause}")
        ours = source.value(
            f"SELECT coalesce(array_agg(o::regclass::text ORDER BY 1), '{{}}')"
            f" FROM unnest(etl.published_tables(({everything}))) o"
        )
        theirs = source.value(
            "SELECT coalesce(array_agg(format('%I.%I', schemaname, tablename)::regclass::text ORDER BY 1), '{}')"
            " FROM pg_publication_tables WHERE pubname = 'q' AND schemaname <> 'etl'"
        )
        assert sorted(ours) == sorted(theirs), clause
        source.run("DROP PUBLICATION q")
