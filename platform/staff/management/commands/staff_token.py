"""`manage.py staff_token USER --can hosts.read,hosts.act --ttl 90d`: a token for programs of staff."""

from __future__ import annotations

from argparse import ArgumentParser
from itertools import chain
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from common.durations import parse_duration
from common.errors import ValidationError
from staff.api_tokens import token_create
from staff.audit import StaffMember, Target, record_entry


class Command(BaseCommand):
    help = "Print a new token of a user of the admin; it is shown only now."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--can", default="hosts.read", help="what it is for, separated by commas")
        parser.add_argument("--ttl", default="90d", help="how long it lives: 12h, 90d")

    @transaction.atomic
    def handle(self, *args: Any, username: str, can: str, ttl: str, **options: Any) -> None:
        user = get_user_model().objects.filter(username=username, is_staff=True, is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user {username!r} of the admin.")
        abilities = [part.strip() for part in can.split(",") if part.strip()]
        try:
            made = token_create(user=user, can=abilities, ttl_seconds=parse_duration(ttl))
        except ValidationError as exc:
            raise CommandError("; ".join(chain.from_iterable((exc.details or {}).values()))) from exc
        except ValueError as exc:
            raise CommandError(str(exc)) from exc
        record_entry(StaffMember(None, "command line"), "user.make_token", Target.of(user), detail=", ".join(abilities))
        self.stdout.write(made.text)
