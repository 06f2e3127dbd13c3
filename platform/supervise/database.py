"""The command that brings an instance's database up to date: `python -m supervise.database [PARENT]`, run once before
each start.

PARENT is the process that runs it: if that is gone, a wait for another host ends, and nothing is migrated.

One process for all of it, because each start of Django costs a second. Every step can be repeated; if the process dies
half way the next start goes on from there.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command

from config.loading import collector_paused
from supervise.files import read_env_file, write_private
from supervise.host_roles import install_role_functions
from supervise.instance import Instance, load_instance
from supervise.migration_lock import LockNotHad, take_migration_lock

ADMIN_USER = "admin"
# The exit code if no database was looked at, because of settings; they are on stderr.
INVALID_SETTINGS = 3
# The exit code if another host has migrated for too long; likewise.
LOCK_NOT_HAD = 4
# The exit code if another machine has this host's name; likewise.
HOST_NAME_HELD = 5
# How lines of stdout begin that are progress for the operator.
REPORT = "report: "
POLL_SECONDS = 1.0


def main() -> None:
    """Migrate, set what hosts may do, collect the static files, and make the credentials file agree with the database;
    on a machine that has joined another one, see that the database is that of its version.
    """
    from django.conf import settings

    try:
        with collector_paused():
            django.setup()
    except ImproperlyConfigured as error:
        _refuse_settings([str(error)])
    require_fitting_settings()
    from common.host_access.policies import apply_grants

    instance = load_instance()
    if _has_control():
        _wait_for_other_hosts(int(sys.argv[1]) if len(sys.argv) > 1 else os.getppid())
    with collector_paused():  # the checks load all routes
        call_command("check", stdout=io.StringIO())
    if _has_control():
        install_role_functions(settings.ENV)
        call_command("migrate", interactive=False, verbosity=0)
        apply_grants()
    else:
        _require_migrated()
    _require_host_name()
    if _has_control():
        _collect_static()
        _write_credentials(instance)


def _has_control() -> bool:
    """Return whether this machine has the control plane: the others change nothing about the database."""
    from django.conf import settings

    return "control" in settings.ENV.machine_roles


def _require_migrated() -> None:
    """End the process, with a line that says so, if the control machine has another version of the platform."""
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    known, applied = set(executor.loader.graph.nodes), set(executor.loader.applied_migrations)
    if known != applied:
        _refuse_settings(["This machine has another version of the platform than the control machine: check that out."])


def require_fitting_settings() -> None:
    """End the process, with one line for each of the settings that contradict each other."""
    from django.conf import settings
    from django.core.checks import ERROR

    from config.checks import host_address_is_no_machines, settings_fit_together

    if not settings.ENV.secret_key:
        _refuse_settings(["PLATFORM_SECRET_KEY is not set: restore secrets.env from a backup."])
    messages = [*settings_fit_together(None), *host_address_is_no_machines(None)]
    found = [message for message in messages if message.level >= ERROR]
    if found:
        _refuse_settings([" ".join(filter(None, (item.msg, item.hint))) for item in found])


def _refuse_settings(lines: list[str]) -> NoReturn:
    print("\n".join(lines), file=sys.stderr)  # noqa: T201
    raise SystemExit(INVALID_SETTINGS)


def _wait_for_other_hosts(parent: int) -> None:
    from django.conf import settings

    try:
        take_migration_lock(settings.ENV.host_name, settings.ENV.migration_wait_seconds, parent, _report)
    except LockNotHad as error:
        print(error, file=sys.stderr)  # noqa: T201
        raise SystemExit(LOCK_NOT_HAD) from error


def _require_host_name() -> None:
    """End the process if another machine reports under this host's name. One that has ended, as this machine before
    a boot that took less, is waited for: its time runs out.
    """
    from django.conf import settings

    from vmbackend.errors import HostNameHeld
    from vmbackend.host_claim import host_claim
    from vmbackend.services import host_held_since, require_host_name

    host = {"name": settings.ENV.host_name, "claim": host_claim(settings.STATE)}
    first = host_held_since(**host)
    while (seen_at := host_held_since(**host)) is not None:
        if seen_at != first:
            try:
                require_host_name(**host)
            except HostNameHeld as error:
                print(error.message, file=sys.stderr)  # noqa: T201
                raise SystemExit(HOST_NAME_HELD) from error
        _report("another machine used this host's name a moment ago: waiting to see whether it still does")
        time.sleep(POLL_SECONDS)


def _report(text: str) -> None:
    print(f"{REPORT}{text}", flush=True)  # noqa: T201


def _collect_static() -> None:
    """Collect the files of the installed version, once; again if the project's own have changed."""
    import unfold
    from django.conf import settings

    target = Path(settings.STATIC_ROOT)
    own = max(path.stat().st_mtime_ns for path in (settings.ROOT / "workspaces" / "static").rglob("*"))
    stamp, version = target / ".collected", f"{django.__version__} {Path(unfold.__file__).stat().st_mtime_ns} {own}"
    if stamp.exists() and stamp.read_text() == version:
        return
    # `clear`: of a copy that was cut off (a death, a full disk) the file is newer than its source, and would stay.
    call_command("collectstatic", interactive=False, verbosity=0, clear=True)
    stamp.write_text(version)


def _write_credentials(instance: Instance) -> None:
    from django.conf import settings

    known = read_env_file(instance.credentials_file)
    here = {"BASE_URL": settings.BASE_URL, "IMAGE": settings.ENV.default_image}
    values = {**here, **_client(known), **_login(known)} if settings.ENV.demo else known | here
    if values != known:
        write_private(instance.credentials_file, "".join(f"{key}={value}\n" for key, value in values.items()))
    # After the file: a password that is in no file would be lost with this process.
    if settings.ENV.demo and values["ADMIN_PASSWORD"]:
        _ensure_admin(values["ADMIN_USER"], values["ADMIN_PASSWORD"])


def _client(known: dict[str, str]) -> dict[str, str]:
    """Return the demo account's credential: the one on file if the database has it, else that of a new account."""
    from accounts.models import Credential

    on_file = {key: known[key] for key in ("CLIENT_ID", "CLIENT_SECRET") if known.get(key)}
    if len(on_file) == 2 and Credential.objects.filter(client_id=on_file["CLIENT_ID"]).exists():
        return on_file
    printed = io.StringIO()
    call_command("account_create", "demo", "--plan", "pro", "--json", stdout=printed)
    created = json.loads(printed.getvalue())
    return {"CLIENT_ID": created["client_id"], "CLIENT_SECRET": created["client_secret"]}


def _login(known: dict[str, str]) -> dict[str, str]:
    """Return the admin's login: the one on file, else a new one. Without a password if there is such a user already: it
    was made by another host of this database, or the file is lost (`manage.py changepassword`).
    """
    from django.contrib.auth import get_user_model

    users: Any = get_user_model().objects
    name = known.get("ADMIN_USER", ADMIN_USER)
    password = known.get("ADMIN_PASSWORD", "")
    if not password and not users.filter(username=name).exists():
        password = secrets.token_urlsafe(15)
    return {"ADMIN_USER": name, "ADMIN_PASSWORD": password}


def _ensure_admin(name: str, password: str) -> None:
    """Make the user if there is none. A password that was changed in the console stays as it was changed."""
    from django.contrib.auth import get_user_model

    users: Any = get_user_model().objects
    if not users.filter(username=name).exists():
        users.create_superuser(username=name, email="", password=password)


if __name__ == "__main__":
    main()
