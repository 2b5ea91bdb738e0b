"""How to reach a Postgres: keys of the file, or one connection string, and libpq's own environment beneath."""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from etl.config.choices import SslMode
from etl.config.dsn import parse_dsn
from etl.config.secrets import Secret
from etl.config.values import NO_BOOL, ConfigModel, resolve_path
from etl.errors import ConfigError
from etl.telemetry.redaction import register_secret

_KEYS = ("host", "port", "dbname", "user", "password", "sslmode", "sslrootcert")


class ConnectionConfig(ConfigModel):
    """A Postgres connection.

    Every key may be left out: libpq then uses its environment variables (``PGHOST``, ``PGPASSWORD`` …), ``.pgpass``
    and service files as usual.
    """

    host: str | None = None
    """Host name, address or socket directory. Default: `PGHOST`, else the local server."""
    port: Annotated[int, Field(ge=1, le=65535), NO_BOOL] | None = None
    """TCP port. Default: `PGPORT`, else 5432."""
    dbname: str | None = None
    """Database. Default: `PGDATABASE`, else the user's name."""
    user: str | None = None
    """Role; it needs the REPLICATION attribute on the source. Default: `PGUSER`, else the system user."""
    password: Secret | None = None
    """Text, `{env: NAME}` or `{file: PATH}`. Default: `PGPASSWORD`, else `.pgpass`."""
    sslmode: SslMode | None = None
    """Default: `PGSSLMODE`, else `verify-full` for a host that is not local, else libpq's `prefer`."""
    sslrootcert: str | None = None
    """File with trusted certificates, or `system`. Default: `PGSSLROOTCERT`, `~/.postgresql/root.crt`, `system`."""
    dsn: Secret | None = None
    """A whole connection string (`postgresql://…` or `key=value …`), instead of all keys above."""
    connect_timeout_s: Annotated[int, Field(ge=2), NO_BOOL] = 10
    """How long one attempt to connect may take, in seconds."""

    @field_validator("host", "dbname", "user", "sslrootcert")
    @classmethod
    def _plain_text(cls, value: str | None) -> str | None:
        if value is not None and (not value or "\0" in value):
            raise PydanticCustomError("text", "must not be empty; leave the key out instead")
        return value

    @field_validator("sslrootcert")
    @classmethod
    def _root_certificate(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None or value == "system":
            return value
        return str(resolve_path(Path(value), info.context))

    @model_validator(mode="after")
    def _one_way_to_connect(self) -> Self:
        others = [key for key in _KEYS if getattr(self, key) is not None]
        if self.dsn is not None and others:
            raise PydanticCustomError(
                "dsn_and_keys",
                "has dsn and also {keys}: give the connection string or the keys, not both",
                {"keys": ", ".join(others)},
            )
        return self

    def parameters(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """The libpq parameters, secrets revealed; what is absent is libpq's to find.

        Hosts that are not local get ``sslmode=verify-full`` unless the configuration or `environ` says otherwise.
        Raises `ConfigError` when a secret cannot be read or the connection string makes no sense.
        """
        environ = os.environ if environ is None else environ
        given = self._given(environ)
        if "connect_timeout_s" in self.model_fields_set or "PGCONNECT_TIMEOUT" not in environ:
            given.setdefault("connect_timeout", str(self.connect_timeout_s))
        _secure_by_default(given, environ)
        _register_passwords(given)
        return given

    def describe(self, environ: Mapping[str, str] | None = None) -> str:
        """``user@host:port/dbname`` as far as it is known; never a secret."""
        environ = os.environ if environ is None else environ
        try:
            given = self._given(environ)
        except ConfigError:
            return "a connection string that cannot be read"
        if service := given.get("service") or environ.get("PGSERVICE"):
            return f"service {service}"
        user = given.get("user") or environ.get("PGUSER") or ""
        host = given.get("host") or environ.get("PGHOST") or "localhost"
        port = given.get("port") or environ.get("PGPORT") or "5432"
        dbname = given.get("dbname") or environ.get("PGDATABASE") or user
        return f"{user}@{host}:{port}/{dbname}" if user else f"{host}:{port}/{dbname}"

    def _given(self, environ: Mapping[str, str]) -> dict[str, str]:
        if self.dsn is not None:
            text = self.dsn.reveal(environ)
            register_secret(text)
            try:
                return parse_dsn(text)
            except ValueError as error:
                raise ConfigError(
                    f"the connection string from dsn cannot be read: {error}",
                    hint="write postgresql://user@host:5432/dbname, and percent-encode special characters",
                ) from None
        given: dict[str, Any] = {key: getattr(self, key) for key in _KEYS if key != "password"}
        if self.password is not None:
            given["password"] = self.password.reveal(environ)
        return {key: str(value) for key, value in given.items() if value is not None}


class SourceConfig(ConnectionConfig):
    """The Postgres that is replicated."""

    allow_unsigned_ddl: bool = False
    """Accept schema-change messages without a valid signature. Anyone who can connect can send one."""
    install_trigger: bool = True
    """Install the event trigger at start when it is missing; false where an administrator does it."""
    failover_slot: bool = False
    """Create the slot so that standbys keep a copy of it (Postgres 17 and newer, see `sync_replication_slots`)."""


def is_local(host: str) -> bool:
    """True when every host of the comma-separated list is this machine or a socket; empty means a local socket."""
    return all(_is_local_host(part.strip()) for part in host.split(","))


def _is_local_host(host: str) -> bool:
    if not host or host[0] in "/@" or host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _secure_by_default(given: dict[str, str], environ: Mapping[str, str]) -> None:
    if "service" in given or "PGSERVICE" in environ:
        return  # only the service file knows the host; its sslmode must win
    host = (
        given.get("hostaddr") or given.get("host") or environ.get("PGHOSTADDR") or environ.get("PGHOST", "")
    )
    mode = given.get("sslmode") or environ.get("PGSSLMODE")
    if mode is None and not is_local(host):
        mode = given["sslmode"] = "verify-full"
    has_own_roots = (Path.home() / ".postgresql" / "root.crt").exists()
    if mode == "verify-full" and not has_own_roots and "PGSSLROOTCERT" not in environ:
        given.setdefault("sslrootcert", "system")
    if given.get("sslrootcert") == "system":
        given["sslrootcert"] = system_certificates()


def system_certificates() -> str:
    """The platform's bundle of trusted certificates.

    The libpq of a binary wheel looks for ``system`` where its own OpenSSL was built, which exists on no machine.
    """
    return ssl.get_default_verify_paths().cafile or "system"


def _register_passwords(given: Mapping[str, str]) -> None:
    """Keep the secrets out of logs, except one that equals a name that is shown anyway."""
    shown = {given.get(key) for key in ("user", "dbname", "host")}
    for key in ("password", "sslpassword", "oauth_client_secret"):
        if (secret := given.get(key)) and secret not in shown:
            register_secret(secret)
