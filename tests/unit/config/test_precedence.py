from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etl.config.loader import Flag, load, load_config
from etl.errors import ConfigError

Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("file", "environ", "flags", "expected", "origin"),
    [
        ("", {}, [], "info", "default"),
        ("log: {level: warning}", {}, [], "warning", "file:1"),
        ("log: {level: warning}", {"ETL__LOG__LEVEL": "error"}, [], "error", "env ETL__LOG__LEVEL"),
        (
            "log: {level: warning}",
            {"ETL__LOG__LEVEL": "error"},
            [Flag("--log-level", "log.level", "debug")],
            "debug",
            "flag --log-level",
        ),
        ("", {"ETL__LOG__LEVEL": ""}, [], "info", "default"),
    ],
    ids=["default", "file", "environment", "flag", "an empty variable is not set"],
)
def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
    write: Write, file: str, environ: dict[str, str], flags: list[Flag], expected: str, origin: str
):
    loaded = load(write(file), flags=flags, environ=environ)

    assert loaded.config.log.level == expected
    assert loaded.origin(("log", "level")) == origin


def test_a_variable_replaces_one_key_and_leaves_its_section(write: Write):
    config = load_config(
        write("source: {host: a, port: 1, user: u}"),
        environ={"ETL__SOURCE__HOST": "b", "ETL__SOURCE__PORT": "2"},
    )

    assert (config.source.host, config.source.port, config.source.user) == ("b", 2, "u")


def test_a_variable_makes_a_section_that_the_file_does_not_have(write: Write):
    assert load_config(write(), environ={"ETL__STORE__HOST": "state"}).state_connection.host == "state"


@pytest.mark.parametrize(
    ("file", "variable"),
    [
        ("source: {password: {file: nowhere}}", {"ETL__SOURCE__PASSWORD": "new"}),
        ("source: {password: {file: nowhere}}", {"ETL__SOURCE__PASSWORD__ENV": "OTHER", "OTHER": "new"}),
        ("source: {password: old}", {"ETL__SOURCE__PASSWORD__ENV": "OTHER", "OTHER": "new"}),
    ],
)
def test_a_secret_is_replaced_whole(write: Write, file: str, variable: dict[str, str]):
    assert load_config(write(file), environ=variable).source.parameters(variable)["password"] == "new"


def test_text_from_a_variable_stays_text_even_when_it_looks_like_a_number(write: Write):
    config = load_config(write(), environ={"ETL__SOURCE__DBNAME": "0123", "ETL__SOURCE__PASSWORD": "007"})

    assert config.source.parameters({})["dbname"] == "0123"
    assert config.source.parameters({})["password"] == "007"


def test_lists_and_sections_from_variables_are_json(write: Write):
    environ = {
        "ETL__TABLES": '[{"name": "public.orders", "mode": "changelog"}]',
        "ETL__BATCH": '{"max_bytes": "1MiB"}',
    }
    config = load_config(write("batch: {max_fill_ms: 5}"), environ=environ)

    assert config.mode_of("public.orders") == "changelog"
    assert (config.batch.max_bytes, config.max_fill_s) == (1024**2, 1.0)


def test_a_variable_that_is_not_the_json_it_should_be_is_named(write: Write):
    with pytest.raises(ConfigError, match=r"env ETL__TABLES: tables must be JSON"):
        load_config(write(), environ={"ETL__TABLES": "public.orders"})


def test_overriding_one_use_of_a_yaml_alias_leaves_the_other(write: Write):
    config = load_config(
        write("source: &db {host: a}\nstore: *db"),
        environ={"ETL__STORE__HOST": "state", "PGSSLMODE": "disable"},
    )

    assert (config.source.host, config.state_connection.host) == ("a", "state")


def test_variables_of_others_are_left_alone(write: Write):
    load_config(write(), environ={"ETL_PIPELINE": "x", "ETLX__SOURCE": "y", "PATH": "z"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [("./w.duckdb", "w.duckdb"), ("data/w.duckdb", "data/w.duckdb"), ("/abs/w.duckdb", "/abs/w.duckdb")],
)
def test_paths_are_relative_to_the_file_and_not_to_where_one_stands(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, expected: str
):
    path = write(f"destination: {{type: duckdb, path: {given}}}")
    monkeypatch.chdir("/")

    assert load_config(path, environ={}).destination.path == tmp_path / expected
    assert (
        load_config(write(), environ={"ETL__DESTINATION__PATH": given}).destination.path
        == tmp_path / expected
    )


def test_the_store_is_the_source_unless_named(write: Write):
    assert (
        load_config(write("source: {host: a}"), environ={"PGSSLMODE": "disable"}).state_connection.host == "a"
    )


def test_a_table_without_its_own_mode_has_the_pipelines(write: Write):
    config = load_config(
        write("mode: changelog\ntables: [{name: public.a, mode: mirror}, {name: public.b}]"), environ={}
    )

    assert [config.mode_of(f"public.{name}") for name in "abc"] == ["mirror", "changelog", "changelog"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("'1'", 1),
        ("2 kB", 2000),
        ("64MiB", 64 * 1024**2),
        ("1GB", 10**9),
        ("1 GiB", 1024**3),
        ("7B", 7),
    ],
)
def test_sizes_are_bytes_or_have_a_unit(write: Write, text: str, size: int):
    assert load_config(write(f"batch: {{max_bytes: {text}}}"), environ={}).batch.max_bytes == size


def test_the_configuration_does_not_change(write: Write):
    config = load_config(write(), environ={})

    with pytest.raises(ValueError, match="frozen"):
        config.mode = "changelog"  # type: ignore[misc]


def test_the_quickstart_is_a_valid_file_that_leaves_the_password_to_libpq():
    path = Path(__file__).parents[3] / "examples" / "quickstart.yaml"
    config = load_config(path, environ={})

    assert config.source.describe({}) == "postgres@localhost:5432/postgres"
    assert "password" not in config.source.parameters({})
    assert config.destination.path == path.parent / "quickstart.duckdb"
