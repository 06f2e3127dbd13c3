"""`manage.py account_create NAME --plan PLAN [--json]`: an account, its default namespace and a first credential."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from itertools import chain
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.services import account_create
from common.errors import ValidationError


class Command(BaseCommand):
    help = "Create an account and print its client credentials; the secret is shown only now."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--plan", default="free")
        parser.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            account, made = account_create(name=options["name"], plan=options["plan"])
        except ValidationError as exc:
            raise CommandError("; ".join(chain.from_iterable((exc.details or {}).values()))) from exc
        shown = {
            "account": account.id,
            "client_id": made.credential.client_id,
            "client_secret": made.secret,
            "plan": account.plan_id,
        }
        if options["as_json"]:
            self.stdout.write(json.dumps(shown))
            return
        for key, value in shown.items():
            self.stdout.write(f"{key}: {value}")
