"""Brings an instance's database up to date: `python -m supervise.database`, run once before each start.

One process for all of it, because each start of Django costs a second. Every step can be repeated; if the process dies
half way the next start goes on from there.
"""

from __future__ import annotations

import io
import json
import secrets
import sys
from pathlib import Path
from typing import Any, NoReturn

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command

from supervise.files import read_env_file, write_private
from supervise.instance import Instance, load_instance

ADMIN_USER = "admin"
# The exit code where no database was looked at, because of settings; they are on stderr.
INVALID_SETTINGS = 3


def main() -> None:
    """Migrate, collect the static files, and make the credentials file agree with the database."""
    try:
        django.setup()
    except ImproperlyConfigured as error:
        _refuse_settings([str(error)])
    require_fitting_settings()
    instance = load_instance()
    call_command("migrate", interactive=False, verbosity=0)
    _collect_static()
    _write_credentials(instance)


def require_fitting_settings() -> None:
    """End the process, with one line for each of the settings that contradict each other."""
    from django.core.checks import ERROR

    from config.checks import settings_fit_together

    found = [message for message in settings_fit_together(None) if message.level >= ERROR]
    if found:
        _refuse_settings([" ".join(filter(None, (item.msg, item.hint))) for item in found])


def _refuse_settings(lines: list[str]) -> NoReturn:
    print("\n".join(lines), file=sys.stderr)  # noqa: T201
    raise SystemExit(INVALID_SETTINGS)


def _collect_static() -> None:
    """Collect the files of the installed version, once; again where the project's own have changed."""
    import unfold
    from django.conf import settings

    target = Path(settings.STATIC_ROOT)
    own = max(path.stat().st_mtime_ns for path in (settings.ROOT / "workspaces" / "static").rglob("*"))
    stamp, version = target / ".collected", f"{django.__version__} {Path(unfold.__file__).stat().st_mtime_ns} {own}"
    if stamp.exists() and stamp.read_text() == version:
        return
    call_command("collectstatic", interactive=False, verbosity=0)
    stamp.write_text(version)


def _write_credentials(instance: Instance) -> None:
    from django.conf import settings

    known = read_env_file(instance.credentials_file)
    values = {
        "BASE_URL": settings.BASE_URL,
        **_client(known),
        "IMAGE": settings.ENV.default_image,
        **_admin(known),
    }
    if values != known:
        write_private(instance.credentials_file, "".join(f"{key}={value}\n" for key, value in values.items()))


def _client(known: dict[str, str]) -> dict[str, str]:
    """The demo account's credential: the one on file where the database has it, else that of a new account."""
    from accounts.models import Credential

    on_file = {key: known[key] for key in ("CLIENT_ID", "CLIENT_SECRET") if known.get(key)}
    if len(on_file) == 2 and Credential.objects.filter(client_id=on_file["CLIENT_ID"]).exists():
        return on_file
    printed = io.StringIO()
    call_command("account_create", "demo", "--plan", "pro", "--json", stdout=printed)
    created = json.loads(printed.getvalue())
    return {"CLIENT_ID": created["client_id"], "CLIENT_SECRET": created["client_secret"]}


def _admin(known: dict[str, str]) -> dict[str, str]:
    """The admin's login. A password that was changed in the console stays as it was changed."""
    from django.contrib.auth import get_user_model

    users: Any = get_user_model().objects
    name = known.get("ADMIN_USER", ADMIN_USER)
    password = known.get("ADMIN_PASSWORD", "")
    user = users.filter(username=name).first()
    if user is None:
        password = password or secrets.token_urlsafe(15)
        users.create_superuser(username=name, email="", password=password)
    elif not password:
        # The process died between creating the user and writing the file: that password is lost.
        password = secrets.token_urlsafe(15)
        user.set_password(password)
        user.save(update_fields=["password"])
    return {"ADMIN_USER": name, "ADMIN_PASSWORD": password}


if __name__ == "__main__":
    main()
