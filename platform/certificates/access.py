"""The platform's account at the CA of the settings, and how that CA is reached."""

from __future__ import annotations

from datetime import datetime
from functools import cache

from django.conf import settings

from certificates.ca import CaAccess, CaClient
from certificates.ca_errors import CaError
from certificates.keys import new_key
from certificates.models import AcmeAccount
from common.outbound_targets import outbound_targets
from outbound.connection import tls_context
from outbound.targets import Targets
from outbound.urls import target_of

CERTIFICATES_OFF = "Certificates are off: this platform has no certificate authority (PLATFORM_ACME_DIRECTORY)."


def is_on() -> bool:
    """Whether the operator has set a CA."""
    return bool(settings.ENV.acme_directory)


def account_current() -> AcmeAccount:
    """The account at the CA of the settings; made with a new key where there is none. The CA is not asked yet."""
    found, _ = AcmeAccount.objects.get_or_create(directory=settings.ENV.acme_directory, defaults={"key": new_key()})
    return found


def account_registered(account: AcmeAccount, until: float) -> CaClient:
    """A client whose requests end by `until`; the account is registered first where it is not yet. Raises CaError.

    A process that dies between the CA's answer and the commit asks again with the same key, for the same account.
    """
    access = _access(account)
    client = CaClient(access, until)
    client.directory_read()
    if not account.url:
        account.url = client.account_register(settings.ENV.acme_contact)
        AcmeAccount.objects.filter(pk=account.pk).update(url=account.url)
    return client


def account_forget_url(account: AcmeAccount) -> None:
    """The CA does not know the account (any more): it is registered again, with its key."""
    AcmeAccount.objects.filter(pk=account.pk).update(url="")


def account_pause(account: AcmeAccount, until: datetime) -> None:
    """Ask nothing of this CA until then."""
    AcmeAccount.objects.filter(pk=account.pk).update(paused_until=until)


def _access(account: AcmeAccount) -> CaAccess:
    authority = settings.ENV.acme_ca_file
    try:
        trust = tls_context(str(authority)) if authority else None
    except OSError as error:
        raise CaError("The platform cannot read PLATFORM_ACME_CA_FILE.", fault="ca") from error
    return CaAccess(account.directory, account.key, account.url, _policy(account.directory), trust)


@cache
def _policy(directory: str) -> Targets:
    """The CA's own host and port may have any address; what else it names must be public."""
    target = target_of(directory)
    own = outbound_targets()
    return Targets(frozenset({(target.host, target.port)}), own.refused)
