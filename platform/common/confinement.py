"""Tell whether this process has the credentials of one host, and not those of the instance."""

from __future__ import annotations

import re

from django.db import connection

_HOST_ID = re.compile(r"host_[a-z2-7]{16}")


def confined_host_id() -> str | None:
    """Return the id of the host whose role this process has in the database; None: the instance's own role."""
    user = str(connection.settings_dict["USER"])
    return user if _HOST_ID.fullmatch(user) else None


def is_confined() -> bool:
    """Return whether this process has one host's credentials: it does its host's work, and leaves the rest of a task
    to the processes of the control plane.
    """
    return confined_host_id() is not None


def is_closed_queue(queue: str) -> bool:
    """Return whether this process may not send to a queue: one with a host's credentials sends to its own alone. Whom a
    wake-up would have been for finds the row at its next look.
    """
    host = confined_host_id()
    return host is not None and queue != f"host.{host}"
