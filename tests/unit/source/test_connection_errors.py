"""What an error of the driver becomes: its class decides whether waiting helps."""

from __future__ import annotations

import psycopg
import pytest

from etl.errors import (
    EtlError,
    PublicationError,
    SlotActiveError,
    SlotLostError,
    SourceAuthenticationError,
    SourceError,
    SourcePrivilegeError,
    SourceSettingError,
    SourceUnavailableError,
)
from etl.source.connection import translate

PARAMETERS = {"user": "u", "host": "h", "port": "1", "dbname": "d", "password": "canary"}
LOST = "server closed the connection unexpectedly"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.OperationalError(LOST), SourceUnavailableError),
        # what the driver makes of a result that libpq itself put together when the connection broke
        (psycopg.DatabaseError(LOST), SourceUnavailableError),
        (psycopg.errors.AdminShutdown("terminating connection"), SourceUnavailableError),
        (psycopg.errors.CannotConnectNow("the database system is starting up"), SourceUnavailableError),
        (psycopg.errors.TooManyConnections("too many clients"), SourceUnavailableError),
        (psycopg.errors.InvalidPassword("password authentication failed"), SourceAuthenticationError),
        (psycopg.OperationalError("FATAL: password authentication failed"), SourceAuthenticationError),
        (psycopg.errors.InsufficientPrivilege("permission denied for table t"), SourcePrivilegeError),
        (psycopg.errors.ObjectInUse("replication slot is active for PID 1"), SlotActiveError),
        (psycopg.errors.ConfigurationLimitExceeded("all replication slots are in use"), SourceSettingError),
        (psycopg.errors.UndefinedObject('replication slot "s" does not exist'), SlotLostError),
        (
            psycopg.errors.ObjectNotInPrerequisiteState(
                'can no longer get changes from replication slot "s"'
            ),
            SlotLostError,
        ),
        (psycopg.errors.UndefinedObject('publication "p" does not exist'), PublicationError),
        (psycopg.errors.UndefinedTable('relation "t" does not exist'), SourceError),
        (psycopg.ProgrammingError("the query has 1 placeholder"), SourceError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_a_driver_error_becomes_the_error_that_says_what_to_do(error: psycopg.Error, kind: type[EtlError]):
    translated = translate(error, PARAMETERS)

    assert type(translated) is kind
    assert translated.message.startswith("u@h:1/d: ")
    assert translated.hint


def test_a_password_in_the_drivers_message_is_masked():
    error = translate(psycopg.OperationalError("cannot use canary here"), PARAMETERS)

    assert "canary" not in str(error)
