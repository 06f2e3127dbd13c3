"""The instance's own PostgreSQL: its data folder, its configuration, and the command that becomes the server.

It listens on a Unix socket in its data folder, `$STATE/postgres/data`, and on a network only if that was opened to
other machines (supervise/network.py). If PLATFORM_DATABASE_URL names another server, none is made or started.
"""

from __future__ import annotations

import errno
import os
import pwd
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from common.private_network import CERTIFICATE, KEY, network_folder, stored_address
from config.database import DATABASE_NAME, HOSTS_GROUP, POOL_SIZE, VMHOST_THREADS
from config.env import Env
from supervise.files import write_private
from supervise.instance import Instance, InstanceError
from supervise.postgres_launcher import LISTEN, PROGRAMS, data_version
from supervise.state_folder import had_database

# The user that Debian's package makes; PostgreSQL does not run as root.
USER = "postgres"
# The role that may change the server's settings, make roles and so on; processes of the platform are `platform`, which
# may not.
SUPERUSER = "postgres"
# Of machines that have joined: each has up to 40, and a few of them most of the time.
_HOST_CONNECTIONS = 400
# Of commands: migrations, backups, those of operators, and the three that a server keeps for superusers.
_OTHER_CONNECTIONS = 40

_CONFIGURATION = """\
# Written by each start of the platform. What ALTER SYSTEM sets (postgresql.auto.conf) wins; superuser: {superuser}.
cluster_name = '{instance}'
# The pools of all processes as large as they can grow, and commands.
max_connections = {connections}
# A small part of the memory, most of which is promised to machines. Pages that it has not are the kernel's to keep.
shared_buffers = {buffers}MB
huge_pages = off
work_mem = 4MB
maintenance_work_mem = 32MB
max_wal_size = 512MB
min_wal_size = 32MB
# There is no standby, and a backup is a dump.
wal_level = minimal
max_wal_senders = 0
max_logical_replication_workers = 0
max_replication_slots = 0
# Statements are short, and processors few.
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
max_worker_processes = 2
autovacuum_max_workers = 2
jit = off
# No statement and no value of a row: they have credentials and data of users.
log_min_error_statement = panic
log_error_verbosity = terse
log_checkpoints = off
log_line_prefix = '%m [%p] '
log_timezone = 'UTC'
timezone = 'UTC'
"""
# For other machines, in TLS alone; the address comes from the launcher, and who may connect is in pg_hba.conf.
_NETWORK = """\
ssl = on
ssl_cert_file = 'server.pem'
ssl_key_file = 'server.key'
ssl_min_protocol_version = 'TLSv1.3'
tcp_keepalives_idle = 30
tcp_keepalives_interval = 10
tcp_keepalives_count = 3
tcp_user_timeout = 60s
"""
_LOG_FILE_BYTES = 16 << 20
DISK_FULL = "The database's disk is full: free some room and run this command again."
_ACCESS = "local all all peer map=platform\n"
# The roles of hosts, and nobody else.
_NETWORK_ACCESS = f"hostssl {DATABASE_NAME} +{HOSTS_GROUP} 0.0.0.0/0 scram-sha-256\n"
_MAKE_DATABASE = f"CREATE ROLE {DATABASE_NAME} LOGIN;\nCREATE DATABASE {DATABASE_NAME} OWNER {DATABASE_NAME};\n"


def data_folder(instance: Instance) -> Path:
    return instance.state / "postgres" / "data"


def server_command(instance: Instance) -> tuple[str, ...]:
    """Return the command that becomes the server (supervise/postgres_launcher.py)."""
    data = f"{instance.state}/postgres/data"
    python = str(Path(sys.executable).with_name("python"))
    return (python, "-m", "supervise.postgres_launcher", data, f"{instance.run_dir}/postgres")


def require_fitting_programs(instance: Instance) -> None:
    """Raise InstanceError if PostgreSQL is not installed, or not in the version of the data folder, or if an instance
    that had a data folder has none any more.
    """
    installed = sorted(path.parent.parent.name for path in PROGRAMS.glob("*/bin/postgres"))
    if not installed:
        raise InstanceError("PostgreSQL is not installed: `make setup` installs it.")
    data = data_folder(instance)
    if not data.exists():
        _require_none_before(instance, data)
        return
    try:
        version, owner = data_version(data), data.stat().st_uid
    except (OSError, ValueError) as error:
        raise InstanceError(f"{data} is not a data folder of PostgreSQL ({error}); restore a backup.") from error
    if version not in installed:
        raise InstanceError(
            f"The database in {data} is of PostgreSQL {version}, and this host has {', '.join(installed)}: install "
            f"postgresql-{version}, or restore a backup into an empty state folder."
        )
    if owner != _user()["user"]:
        name = pwd.getpwuid(_user()["user"]).pw_name
        raise InstanceError(f"{data} must belong to the user {name}: chown -R {name}: {data}")


def _require_none_before(instance: Instance, data: Path) -> None:
    """Raise InstanceError if there was a data folder, or if it is a link to a place that is not there.

    An empty database in its place would know no machine and no file, and so have all of them removed as orphans.
    """
    if data.is_symlink() or had_database(instance.state):
        raise InstanceError(
            f"The database of this instance is not in {data} any more: bring it back (is its disk mounted?), or "
            "restore a backup. To begin anew, remove the instance: "
            f"make clean-instance CONFIRM=yes STATE={instance.state}"
        )


def make_data_folder(data: Path) -> None:
    """Make a data folder with an empty database, completely or not at all; nothing happens if there is one.

    The caller sees to it that no other process does the same. Raise InstanceError.
    """
    if data.exists():
        return
    data.parent.mkdir(mode=0o711, exist_ok=True)
    data.parent.chmod(0o711)
    for partial in data.parent.glob(".data.*"):  # of a call that died
        shutil.rmtree(partial, ignore_errors=True)
    beside = data.with_name(f".data.{secrets.token_hex(4)}")
    beside.mkdir(mode=0o700)
    user = _user()
    os.chown(beside, user["user"], user["group"])
    descriptor = os.open(beside, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _fill(descriptor, max(PROGRAMS.glob("*/bin/postgres"), key=_version).parent, user)
        beside.rename(data)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)  # the disk may be full
        raise
    finally:
        os.close(descriptor)
    # Its name has to be on the disk before anything that is stored in it.
    descriptor = os.open(data.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_server_configuration(instance: Instance, settings: Env) -> None:
    """Write what the launcher puts into the data folder. Raise OSError."""
    folder = instance.run_dir / "postgres"
    folder.mkdir(mode=0o700, exist_ok=True)
    address = stored_address(instance.state)
    write_private(folder / "postgresql.conf", _configuration(instance, settings, is_open=bool(address)))
    write_private(folder / "pg_hba.conf", _ACCESS + _NETWORK_ACCESS if address else _ACCESS)
    write_private(folder / LISTEN, address)
    if address:
        for name in (CERTIFICATE, KEY):
            write_private(folder / name, (network_folder(instance.state) / name).read_text())
    login = pwd.getpwuid(os.geteuid()).pw_name
    roles = (DATABASE_NAME, SUPERUSER)
    write_private(folder / "pg_ident.conf", "".join(f'platform "{login}" {role}\n' for role in roles))


def says_full_disk(output: str) -> bool:
    """Return whether a program failed because the disk, or a quota of it, was full."""
    return any(os.strerror(number) in output for number in (errno.ENOSPC, errno.EDQUOT))


def has_room(data: Path) -> bool:
    """Return whether the disk of the data folder has room for more of the log of writes; without it the server ends.

    True if there is no data folder, as the database is on another server.
    """
    if not data.exists():
        return True
    found = os.statvfs(data)
    return found.f_bavail * found.f_frsize >= _LOG_FILE_BYTES


def _fill(descriptor: int, programs: Path, user: dict[str, Any]) -> None:
    """Fill the folder through its descriptor, as the user need not reach the folder by its path."""
    data = f"/proc/self/fd/{descriptor}"
    options = ("--username", SUPERUSER, "--encoding=UTF8", "--locale=C.UTF-8", "--auth=reject")
    # The second one is PostgreSQL without a server: a statement is a line.
    commands: dict[tuple[str, ...], str] = {
        (f"{programs}/initdb", "-D", data, *options): "",
        (f"{programs}/postgres", "--single", "-D", data, "postgres"): _MAKE_DATABASE,
    }
    for command, statements in commands.items():
        done = subprocess.run(
            command,
            input=statements,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"},
            pass_fds=[descriptor],
            **user,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0 and says_full_disk(done.stderr):
            raise InstanceError(DISK_FULL)
        if done.returncode != 0 or "ERROR:" in done.stderr:
            lines = " ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
            raise InstanceError(f"The database could not be made: {lines}")


def _user() -> dict[str, Any]:
    """Return the user of the data folder and the server as arguments of `subprocess`. Raise InstanceError."""
    if os.geteuid() != 0:
        return {"user": os.geteuid(), "group": os.getegid()}
    try:
        found = pwd.getpwnam(USER)
    except KeyError as error:
        raise InstanceError(f"There is no user {USER}, which PostgreSQL runs as: `make setup` installs it.") from error
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


def _version(program: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in program.parent.parent.name.split(".") if part.isdigit())


def _configuration(instance: Instance, settings: Env, *, is_open: bool) -> str:
    memory_mb = (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) >> 20
    made = _CONFIGURATION.format(
        instance=instance.id,
        superuser=SUPERUSER,
        connections=_connections(settings) + (_HOST_CONNECTIONS if is_open else 0),
        buffers=min(1024, max(64, memory_mb // 64)),
    )
    return made + _NETWORK if is_open else made


def _connections(settings: Env) -> int:
    """Count those of all pools: each process of api and worker, streams, hooks, pages, push, media and beat."""
    pools = settings.api_workers + settings.worker_processes + 1 + 6
    vmhost = max(POOL_SIZE, settings.vmhost_threads + VMHOST_THREADS)
    return pools * POOL_SIZE + vmhost + _OTHER_CONNECTIONS
