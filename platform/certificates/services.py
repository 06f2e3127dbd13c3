"""The only writers of certificates."""

from __future__ import annotations

from collections.abc import Collection


def certificate_request(names: Collection[str]) -> None:
    """Have a certificate for each of these names, and renew it, until it is removed. Idempotent.

    Names are lower-case ASCII (IDNA). Writes rows in the caller's transaction and wakes the worker after it.
    """


def certificate_remove(names: Collection[str]) -> None:
    """Forget the certificates of these names and their keys; an order under way is given up. Idempotent."""


def certificate_renew(names: Collection[str]) -> None:
    """Order new certificates now. The present ones are served until the new ones are there.

    Raises Conflict `renewal_in_progress` where an order of one of the names is under way, and RateLimited where its limit
    of orders is reached; nothing has changed then. Names without a row are as in `certificate_request`.
    """
