"""`manage.py host_roles_sql`: what the administrator of another PostgreSQL runs, so that machines can join."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from common.host_access.roles import roles_sql


class Command(BaseCommand):
    help = (
        "Print the SQL that a superuser runs in the platform's database, once after each update, so that hosts get "
        "roles of their own: manage.py host_roles_sql | psql -U postgres -d DATABASE. The instance's own server needs "
        "none of it."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(roles_sql())
