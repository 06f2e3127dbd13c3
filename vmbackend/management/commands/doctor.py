"""`manage.py doctor [--json]`: checks of this host and instance, each with its fix."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import redis
from django.apps import apps
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils.module_loading import module_has_submodule

from vmbackend.hostcheck import CheckTarget, Finding, check_caddy, check_host, check_port
from vmbackend.uids import UidRange


class Command(BaseCommand):
    help = "Check this host and instance; exit code 1 if a needed check fails."
    requires_system_checks: list[str] = []  # a broken setting is a finding

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *args: Any, **options: Any) -> None:
        findings = []
        for finding in _findings():
            findings.append(finding)
            if not options["as_json"]:
                self._print_finding(finding)
        if options["as_json"]:
            self.stdout.write(json.dumps([asdict(finding) for finding in findings], indent=2))
        if any(finding.needed and not finding.found for finding in findings):
            raise SystemExit(1)

    def _print_finding(self, finding: Finding) -> None:
        status = "ok" if finding.found else ("MISSING" if finding.needed else "absent")
        style = self.style.SUCCESS if finding.found else self.style.ERROR if finding.needed else self.style.WARNING
        self.stdout.write(f"{style(f'{status:<8}')} {finding.name:<34} {finding.message}")
        if not finding.found and finding.fix:
            self.stdout.write(f"{'':<44}fix: {finding.fix}")


def _findings() -> Iterator[Finding]:
    yield _database()
    answers = _redis_answers()
    yield _redis(answers)
    if "edge" in settings.ENV.machine_roles:
        yield check_caddy(Path(sys.executable).with_name("caddy"))
        yield check_port(settings.ENV.port, ours=answers)
        yield from _lines_of_apps()
    if settings.ENV.vm_backend == "libvirt":
        yield from check_host(_target())
        yield _default_image()


def _lines_of_apps() -> Iterator[Finding]:
    """Yield the lines of each app's module `doctor`, found by its name, as this app imports no other. None of them is
    needed.
    """
    for app in apps.get_app_configs():
        if not module_has_submodule(app.module, "doctor"):
            continue
        try:
            for name, found, message, fix in import_module(f"{app.name}.doctor").doctor_lines():
                yield Finding(name, found, message, fix, needed=False)
        except DatabaseError as error:
            yield Finding(app.label, False, str(error).strip(), "make up", needed=False)


def _target() -> CheckTarget:
    env = settings.ENV
    return CheckTarget(
        root=Path(settings.ROOT),
        kit_dir=env.kit_dir,
        state=Path(settings.STATE),
        libvirt_uri=env.libvirt_uri,
        instance=env.instance,
        machines_dir=env.machines_dir,
        uids=UidRange(env.machine_uid_first, env.subnet),
        has_peers=bool(env.host_address),
    )


def _database() -> Finding:
    try:
        executor = MigrationExecutor(connection)
        pending = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except DatabaseError as error:
        # The checks that follow ask it, too.
        connection.pool.timeout = 1.0  # type: ignore[attr-defined]  # PostgreSQL's connections have one
        own = "make up (the log is postgres.log)" if settings.ENV.has_own_server else ""
        fix = own or "check PLATFORM_DATABASE_URL (docs/operations.md)"
        return Finding("database", False, str(error).strip(), fix)
    if pending:
        return Finding("database", False, f"{pending} migrations are not applied", "make up")
    return Finding("database", True, f"{connection.vendor} answers, migrated")


def _redis_answers() -> bool:
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2) as client:
            return bool(client.ping())
    except (redis.RedisError, OSError):
        return False


def _redis(answers: bool) -> Finding:
    message = "answers" if answers else "does not answer; it only runs while the instance is up"
    # Optional: an instance that is down has no Redis running, which is not a defect of the host.
    return Finding("redis", answers, message, "make up", needed=False)


def _default_image() -> Finding:
    name = settings.ENV.default_image
    if not name.startswith("localhost/"):
        return Finding("default image", True, f"{name} is pulled on first use")
    found = (settings.ENV.images_dir / "oci" / "index.json").exists()
    return Finding("default image", found, name if found else f"{name} has not been built", "make image")
