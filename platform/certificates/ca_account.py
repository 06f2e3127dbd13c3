"""The platform's account at the CA of the settings, as a row. Every process loads this: it asks no CA."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from certificates.keys import new_key
from certificates.models import AcmeAccount

CERTIFICATES_OFF = "Certificates are off: this platform has no certificate authority (PLATFORM_ACME_DIRECTORY)."


def is_on() -> bool:
    """Return whether the operator has set a CA."""
    return bool(settings.ENV.acme_directory)


def account_current() -> AcmeAccount:
    """Return the account at the CA of the settings; made with a new key if there is none. The CA is not asked yet."""
    found, _ = AcmeAccount.objects.get_or_create(directory=settings.ENV.acme_directory, defaults={"key": new_key()})
    return found


def account_forget_url(account: AcmeAccount) -> None:
    """Forget the URL of an account that the CA does not know (any more): it is registered again, with its key."""
    AcmeAccount.objects.filter(pk=account.pk).update(url="")


def pause_account(account: AcmeAccount, until: datetime) -> None:
    """Ask nothing of this CA until then."""
    AcmeAccount.objects.filter(pk=account.pk).update(paused_until=until)
