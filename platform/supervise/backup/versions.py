"""Whether this version of the platform can read the database of a backup."""

from __future__ import annotations

from collections.abc import Iterable

from supervise.instance import ROOT, InstanceError


def require_known_migrations(migrations: Iterable[str]) -> None:
    """A database of an older version is migrated at the start; one of a newer version cannot be used.

    Of the project's own apps: those of packages follow its lock file. Raise InstanceError.
    """
    known = known_migrations()
    apps = {name.partition(".")[0] for name in known}
    newer = [name for name in migrations if name.partition(".")[0] in apps and name not in known]
    if newer:
        raise InstanceError(
            f"The backup is of a newer version, whose database has {newer[0]}: restore with that version or later."
        )


def known_migrations() -> set[str]:
    """Return the migrations of the files in this checkout, as `app.name`."""
    files = [*ROOT.glob("*/migrations/[0-9]*.py"), *ROOT.glob("platform/*/migrations/[0-9]*.py")]
    return {f"{path.parent.parent.name}.{path.stem}" for path in files}
