"""Brings an instance's database up to date: `python -m config.supervise.database`, run once before each
start.

One process for all of it, because each start of Django costs a second. Every step can be repeated; if the
process dies half way the next start goes on from there.
"""

from __future__ import annotations

import io
import json
import secrets
from pathlib import Path
from typing import Any

import django
from django.core.management import call_command

from config.instance import Instance, load_instance, write_private

ADMIN_USER = "admin"


def main() -> None:
    """Migrate, collect the static files, and see to it that the credentials file tells the truth."""
    django.setup()
    instance = load_instance()
    call_command("migrate", interactive=False, verbosity=0)
    _collect_static()
    _credentials(instance)


def read_credentials(path: Path) -> dict[str, str]:
    """The credentials file as a mapping; empty where there is none."""
    if not path.exists():
        return {}
    pairs = (text.partition("=") for text in path.read_text().splitlines() if "=" in text)
    return {key: value for key, _, value in pairs}


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


def _credentials(instance: Instance) -> None:
    from django.conf import settings

    kept = read_credentials(instance.credentials_file)
    values = {
        "BASE_URL": settings.BASE_URL,
        **_client(kept),
        "IMAGE": settings.ENV.default_image,
        **_admin(kept),
    }
    if values != kept:
        write_private(instance.credentials_file, "".join(f"{key}={value}\n" for key, value in values.items()))


def _client(kept: dict[str, str]) -> dict[str, str]:
    """The demo account's credential: the one on file while the database knows it, else a new account's."""
    from accounts.models import Credential

    known = {key: kept[key] for key in ("CLIENT_ID", "CLIENT_SECRET") if kept.get(key)}
    if len(known) == 2 and Credential.objects.filter(client_id=known["CLIENT_ID"]).exists():
        return known
    printed = io.StringIO()
    call_command("account_create", "demo", "--plan", "pro", "--json", stdout=printed)
    made = json.loads(printed.getvalue())
    return {"CLIENT_ID": made["client_id"], "CLIENT_SECRET": made["client_secret"]}


def _admin(kept: dict[str, str]) -> dict[str, str]:
    """The admin's login. A password that was changed in the console stays as it was changed."""
    from django.contrib.auth import get_user_model

    users: Any = get_user_model().objects
    name = kept.get("ADMIN_USER", ADMIN_USER)
    password = kept.get("ADMIN_PASSWORD", "")
    user = users.filter(username=name).first()
    if user is None:
        password = password or secrets.token_urlsafe(15)
        users.create_superuser(username=name, email="", password=password)
    elif not password:
        # The process died between the user and the file: nobody has ever seen that password.
        password = secrets.token_urlsafe(15)
        user.set_password(password)
        user.save(update_fields=["password"])
    return {"ADMIN_USER": name, "ADMIN_PASSWORD": password}


if __name__ == "__main__":
    main()
