"""`manage.py host_token [--name NAME | --host HOST] [--ttl 10m]`: prints the line with which another machine joins."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from common.durations import parse_duration
from common.errors import DomainError
from hosts.serializers import HOST_NAME
from hosts.tokens import DEFAULT, LONGEST, SHORTEST, token_create
from staff.audit import StaffMember, Target, record_entry
from vmbackend.models import Host


class Command(BaseCommand):
    help = "Print the line with which another machine joins; its token is for one machine."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--name", default="", help="of the host; default: the machine's own")
        parser.add_argument("--host", default="", help="a host that there is, whose machine was replaced")
        parser.add_argument("--ttl", default=f"{DEFAULT}s", help="how long it can be used: 10m, at most 1h")

    @transaction.atomic
    def handle(self, *args: Any, name: str, host: str, ttl: str, **options: Any) -> None:
        try:
            seconds = parse_duration(ttl)
        except ValueError as exc:
            raise CommandError(str(exc)) from exc
        if not SHORTEST <= seconds <= LONGEST:
            raise CommandError(f"--ttl is between {SHORTEST} and {LONGEST} seconds.")
        if name and not HOST_NAME.fullmatch(name):
            raise CommandError("--name has lower-case letters, digits and - only, 40 at most.")
        found = Host.objects.filter(name=host).first()
        if host and found is None:
            raise CommandError(f"There is no host {host!r}.")
        member = StaffMember(None, "command line")
        try:
            made = token_create(name=name, host=found, ttl_seconds=seconds, actor=member.actor)
        except DomainError as exc:
            raise CommandError(exc.message) from exc
        record_entry(member, "host.make_token", Target.of(made.token))
        self.stdout.write(made.command)
