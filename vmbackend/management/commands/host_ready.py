"""`manage.py host_ready [--wait SECONDS]`: whether this machine's host takes machines; exit code 1 if it does not."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from vmbackend.host_states import HostState
from vmbackend.models import Host

POLL_SECONDS = 0.5


class Command(BaseCommand):
    help = "Say whether this machine's host takes machines."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--wait", type=int, default=0, help="for so many seconds, until it does")

    def handle(self, *args: Any, wait: int, **options: Any) -> None:
        deadline = time.monotonic() + wait
        while (reason := self._reason()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if reason:
            raise CommandError(reason)
        self.stdout.write(f"The host {settings.ENV.host_name} takes machines.")

    def _reason(self) -> str:
        """Return why it takes none; empty if it does."""
        found = Host.objects.filter(name=settings.ENV.host_name).first()
        if found is None or not found.answers:
            return (found.problem if found else "") or "vmhost has not reported yet; see its log."
        return (
            "" if found.state == HostState.ACTIVE else f"New machines are placed elsewhere: the host is {found.state}."
        )
