"""Remove the second factor of a user of the admin who has lost it: for who has the host."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from common.errors import NotFound
from staff.audit import StaffMember, Target, record_entry
from staff.second_factor.services import factor_reset


class Command(BaseCommand):
    help = "Remove the second factor of a user of the admin; the password alone logs in then."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--reason", default="", help="why, for the audit entry")

    @transaction.atomic
    def handle(self, *args: Any, username: str, reason: str, **options: Any) -> None:
        user = get_user_model().objects.filter(username=username).first()
        if user is None:
            raise CommandError(f"There is no user {username!r}.")
        try:
            factor_reset(user.pk)
        except NotFound as exc:
            raise CommandError(exc.message) from exc
        record_entry(StaffMember(None, "command line"), "user.reset_factor", Target.of(user), reason=reason[:300])
        self.stdout.write(f"The second factor of {username} is removed.")
