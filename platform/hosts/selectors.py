"""Reading hosts, for staff."""

from __future__ import annotations

from common.errors import NotFound
from vmbackend.models import Host


def get_host(host_id: str) -> Host:
    """Raise NotFound."""
    found = Host.objects.filter(pk=host_id).first()
    if found is None:
        raise NotFound("There is no such host.")
    return found
