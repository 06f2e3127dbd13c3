"""Reading credentials, as far as an actor reaches."""

from __future__ import annotations

from django.db.models import QuerySet

from accounts.actors import Actor
from accounts.models import Credential


def listed_credentials(actor: Actor) -> QuerySet[Credential]:
    """Return the credentials of the actor's account, newest first, without the hashes of their secrets."""
    return Credential.objects.filter(account=actor.account).order_by("-created_at", "id").defer("secret_hash")
