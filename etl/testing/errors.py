"""What goes wrong in the test tools themselves."""

from __future__ import annotations

from etl.errors import EtlError


class PostgresUnavailableError(EtlError):
    """No real Postgres can be had; the message lists what was tried and why each way failed."""

    kind = "test_postgres"
