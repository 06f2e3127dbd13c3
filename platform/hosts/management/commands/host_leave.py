"""`manage.py host_leave`: on the machine of a host that has no workspaces: the platform forgets it.

`make leave` runs it, and then removes what this machine has of the instance.
"""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection

from common.confinement import confined_host_id
from vmbackend.models import Host
from vmbackend.services import request_leave

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.5


class Command(BaseCommand):
    help = "Ask the control plane to remove this machine's host, and wait until it has."

    def handle(self, *args: Any, **options: Any) -> None:
        host_id = confined_host_id()
        if not host_id:
            raise CommandError("This machine has joined no other one.")
        try:
            is_host = Host.objects.filter(pk=host_id).exists()
        except OperationalError as error:
            raise CommandError(
                "The database lets this machine in no more, or is away. If the host was removed: make clean-instance "
                f"CONFIRM=yes STATE={settings.STATE}"
            ) from error
        if is_host:
            request_leave(host_id=host_id)
            self._wait_until_removed(host_id)
        self.stdout.write("This machine is no host any more.")

    def _wait_until_removed(self, host_id: str) -> None:
        """Raise CommandError if the host stays."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            try:
                host = Host.objects.filter(pk=host_id).first()
            except OperationalError:  # its credentials have ended
                connection.close()
                return
            if host is None:
                return
            if host.leaving_at is None:
                raise CommandError("The host has workspaces: staff move or delete them first (its page in the admin).")
        raise CommandError("The control plane does not answer; try again, or have staff remove the host.")
