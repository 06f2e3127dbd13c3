"""Lines of `manage.py doctor` about certificates. The command looks for a module of this name in every app."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import Count, Q
from django.utils import timezone

from certificates.ca_account import is_on
from certificates.models import Certificate, Status

SOON = timedelta(days=7)


# Name, whether all is well, a sentence, what to do if it is not.
Line = tuple[str, bool, str, str]


def doctor_lines() -> Iterator[Line]:
    """Raise DatabaseError."""
    yield ("certificates", *_state())


def _state() -> tuple[bool, str, str]:
    env = settings.ENV
    if not is_on():
        return True, "off: no PLATFORM_ACME_DIRECTORY", ""
    if env.acme_ca_file and not Path(env.acme_ca_file).is_file():
        return False, "PLATFORM_ACME_CA_FILE is not a file", "docs/operations.md, Certificates of domains"
    if not env.domains_http_port:
        return False, "no CA can fetch its tokens", "set PLATFORM_DOMAINS_HTTP_PORT (docs/operations.md)"
    late = Q(status=Status.ACTIVE, expires_at__lt=timezone.now() + SOON) | Q(status=Status.EXPIRED)
    found = Certificate.objects.filter(wanted=True).aggregate(
        active=Count("pk", filter=Q(status=Status.ACTIVE)),
        waiting=Count("pk", filter=Q(status=Status.PENDING)),
        failed=Count("pk", filter=Q(status=Status.FAILED)),
        late=Count("pk", filter=late),
    )
    message = "{active} active, {waiting} wait, {failed} failed, {late} expire within a week".format(**found)
    return not found["failed"] and not found["late"], message, "the admin has the CA's sentences (Certificates)"
