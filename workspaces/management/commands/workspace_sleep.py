"""`manage.py workspace_sleep ID...`: put running workspaces to sleep now, whether they are idle or not."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from common.errors import DomainError
from workspaces.models import Workspace
from workspaces.operations import waiting
from workspaces.power import workspace_sleep


class Command(BaseCommand):
    help = "Put running workspaces to sleep: memory to the host's disk. They wake by start, resume or a request."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("ids", nargs="*", metavar="ID", help="Workspaces; - reads one id a line from stdin.")

    def handle(self, *args: Any, **options: Any) -> None:
        failed = False
        for workspace_id in _ids(options["ids"]):
            status, message = put_to_sleep(workspace_id)
            failed |= status != "sleeping"
            self.stdout.write(f"{workspace_id} {status}{': ' if message else ''}{message}")
            self.stdout.flush()
        if failed:
            raise CommandError("Not every workspace sleeps.")


def _ids(given: list[str]) -> Any:
    return (line.strip() for line in sys.stdin) if given == ["-"] else given


def put_to_sleep(workspace_id: str) -> tuple[str, str]:
    """Wait for one sleep. Return the status then, and why the workspace does not sleep if so."""
    row = Workspace.objects.select_related("account", "host").filter(pk=workspace_id).first()
    if row is None:
        return "unknown", "There is no such workspace."
    try:
        operation = workspace_sleep(workspace=row, actor="manage.py")
    except DomainError as exc:
        return row.status, exc.message
    ended = waiting.wait_for_outcome(operation, settings.ENV.power_seconds)
    row.refresh_from_db()
    return row.status, ended.error_message if ended else "The operation is still in progress."
