"""How the CA of the settings is reached, and the registration of the platform's account there."""

from __future__ import annotations

import logging
from functools import cache

from django.conf import settings

from certificates.ca import CaAccess, CaClient
from certificates.ca_errors import CaError
from certificates.models import AcmeAccount
from common.outbound_targets import outbound_targets
from outbound.connection import tls_context
from outbound.errors import OutboundError
from outbound.targets import Targets
from outbound.urls import target_of

logger = logging.getLogger(__name__)


def account_registered(account: AcmeAccount, until: float) -> CaClient:
    """Return a client whose requests end by `until`; the account is registered first if it is not yet. Raise CaError.

    A process that dies between the CA's answer and the commit asks again with the same key, for the same account.
    """
    access = _access(account)
    client = CaClient(access, until)
    client.read_directory()
    contact = settings.ENV.acme_contact
    if not account.url:
        account.url, was_there = client.register_account(contact)
        account.contact = "" if was_there else contact
        AcmeAccount.objects.filter(pk=account.pk).update(url=account.url, contact=account.contact)
    if account.contact != contact:
        _contact_update(account, client, contact)
    return client


def _contact_update(account: AcmeAccount, client: CaClient, contact: str) -> None:
    """Send a changed contact. One that the CA refuses does not hold up orders, and is not sent again. Raise CaError if
    the CA is away.
    """
    try:
        client.update_contact(account.url, contact)
    except CaError as error:
        if error.fault != "name" or error.problem == "accountDoesNotExist":
            raise
        logger.error("The CA does not accept PLATFORM_ACME_CONTACT: %s", error)
    AcmeAccount.objects.filter(pk=account.pk).update(contact=contact)


def _access(account: AcmeAccount) -> CaAccess:
    authority = settings.ENV.acme_ca_file
    try:
        trust = tls_context(str(authority)) if authority else None
        policy = _policy(account.directory)
    except OSError as error:
        raise CaError("The platform cannot read PLATFORM_ACME_CA_FILE.", fault="ca") from error
    except OutboundError as error:
        raise CaError("PLATFORM_ACME_DIRECTORY is not a URL that can be used.", fault="ca") from error
    return CaAccess(account.directory, account.key, account.url, policy, trust)


@cache
def _policy(directory: str) -> Targets:
    """Return the policy: the CA's own host and port may have any address; other places that it names must be public."""
    target = target_of(directory)
    own = outbound_targets()
    return Targets(frozenset({(target.host, target.port)}), own.refused)
