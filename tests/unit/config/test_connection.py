from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etl.config.connection import ConnectionConfig, is_local, system_certificates
from etl.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def parameters(given: dict[str, object], environ: dict[str, str] | None = None) -> dict[str, str]:
    return ConnectionConfig.model_validate(given).parameters(environ or {})


def test_what_is_left_out_is_left_to_libpq():
    assert parameters({}) == {"connect_timeout": "10"}


def test_keys_become_libpq_parameters_with_the_secret_revealed():
    given = {
        "host": "localhost",
        "port": 5433,
        "dbname": "d",
        "user": "u",
        "password": {"env": "PW"},
        "sslmode": "prefer",
    }

    assert parameters(given, {"PW": "secret-1"}) == {
        "host": "localhost",
        "port": "5433",
        "dbname": "d",
        "user": "u",
        "password": "secret-1",
        "sslmode": "prefer",
        "connect_timeout": "10",
    }


def test_a_connection_string_becomes_parameters_too():
    given = {"dsn": {"env": "DATABASE_URL"}}

    assert parameters(given, {"DATABASE_URL": "postgresql://u:secret-2@localhost/d?connect_timeout=3"}) == {
        "host": "localhost",
        "dbname": "d",
        "user": "u",
        "password": "secret-2",
        "connect_timeout": "3",
    }


def test_a_connection_string_without_sense_is_an_error_that_does_not_show_it():
    with pytest.raises(ConfigError, match="connection string from dsn cannot be read") as caught:
        parameters({"dsn": "canary-in-a-wrong-dsn"})

    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        ({}, {}, None),
        ({"host": "localhost"}, {}, None),
        ({"host": "127.0.0.1"}, {}, None),
        ({"host": "/var/run/postgresql"}, {}, None),
        ({"host": "db.example.com"}, {}, "verify-full"),
        ({"host": "10.0.0.1"}, {}, "verify-full"),
        ({"host": "localhost,db.example.com"}, {}, "verify-full"),
        ({}, {"PGHOST": "db.example.com"}, "verify-full"),
        ({}, {"PGHOSTADDR": "10.0.0.1", "PGHOST": "localhost"}, "verify-full"),
        ({"dsn": "postgresql://db.example.com/d"}, {}, "verify-full"),
        ({"dsn": "postgresql://db.example.com/d?sslmode=require"}, {}, "require"),
        ({"host": "db.example.com", "sslmode": "disable"}, {}, "disable"),
        ({"host": "db.example.com"}, {"PGSSLMODE": "require"}, None),
        ({}, {"PGSERVICE": "prod", "PGHOST": "db.example.com"}, None),
        ({"dsn": "service=prod"}, {}, None),
    ],
)
def test_a_host_that_is_not_this_machine_is_verified_unless_someone_says_otherwise(
    given: dict[str, object], environ: dict[str, str], expected: str | None
):
    assert parameters(given, environ).get("sslmode") == expected


def test_a_verified_host_is_checked_against_the_certificates_of_the_platform():
    assert parameters({"host": "db.example.com"})["sslrootcert"] == system_certificates()
    assert (
        parameters({"host": "h", "sslmode": "verify-full", "sslrootcert": "system"})["sslrootcert"]
        == system_certificates()
    )


@pytest.mark.parametrize(
    ("given", "environ"),
    [({"sslrootcert": "/my/ca.crt"}, {}), ({}, {"PGSSLROOTCERT": "/my/ca.crt"})],
)
def test_certificates_that_someone_named_win(given: dict[str, object], environ: dict[str, str]):
    assert parameters({"host": "db.example.com", **given}, environ).get("sslrootcert") == given.get(
        "sslrootcert"
    )


def test_libpqs_own_certificate_file_wins_over_the_platforms(home: Path):
    (home / ".postgresql").mkdir()
    (home / ".postgresql" / "root.crt").write_text("")

    assert "sslrootcert" not in parameters({"host": "db.example.com"})


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        ({}, {}, "10"),
        ({}, {"PGCONNECT_TIMEOUT": "3"}, None),
        ({"connect_timeout_s": 5}, {"PGCONNECT_TIMEOUT": "3"}, "5"),
    ],
)
def test_a_timeout_of_the_environment_beats_the_default_and_not_the_file(
    given: dict[str, object], environ: dict[str, str], expected: str | None
):
    assert parameters(given, environ).get("connect_timeout") == expected


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("", True),
        ("/run/pg", True),
        ("@abstract", True),
        ("LOCALHOST", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("localhost,127.0.0.1", True),
        ("localhost.example.com", False),
        ("192.168.1.1", False),
        ("::2", False),
        ("db", False),
    ],
)
def test_local_is_what_does_not_leave_the_machine(host: str, local: bool):
    assert is_local(host) is local


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        ({"host": "h", "port": 1, "user": "u", "dbname": "d", "password": "p"}, {}, "u@h:1/d"),
        ({"user": "u"}, {}, "u@localhost:5432/u"),
        ({}, {"PGHOST": "h", "PGPORT": "1", "PGUSER": "u", "PGDATABASE": "d"}, "u@h:1/d"),
        ({"dsn": "postgresql://u:p@h:1/d"}, {}, "u@h:1/d"),
        ({"dsn": {"env": "NOT_SET"}}, {}, "a connection string that cannot be read"),
        ({}, {"PGSERVICE": "prod"}, "service prod"),
    ],
)
def test_a_connection_is_described_without_its_secrets(
    given: dict[str, object], environ: dict[str, str], expected: str
):
    assert ConnectionConfig.model_validate(given).describe(environ) == expected


def test_a_certificate_path_is_relative_to_the_file():
    context: dict[str, Path] = {"base_dir": Path("/etc/etl")}
    resolve: Callable[[str], str | None] = lambda text: (  # noqa: E731
        ConnectionConfig.model_validate({"sslrootcert": text}, context=context).sslrootcert
    )

    assert [resolve("ca.crt"), resolve("/x/ca.crt"), resolve("system")] == [
        "/etc/etl/ca.crt",
        "/x/ca.crt",
        "system",
    ]
