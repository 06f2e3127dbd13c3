"""Whether a URL may be the target of a webhook."""

from __future__ import annotations

from common.errors import ValidationError
from common.outbound_targets import outbound_targets
from outbound.errors import OutboundError
from outbound.targets import required_target
from outbound.urls import target_of


def url_problem(url: str) -> str | None:
    """Return why a URL is never connected to, by what it says itself: no name is looked up. None: nothing is wrong with
    it.
    """
    try:
        required_target(url, outbound_targets())
    except OutboundError as exc:
        return exc.sentence
    return None


def required_host(url: str) -> str:
    """Return the host that a URL names. Raise ValidationError, which names `url`, for one that is never connected to.

    May look a name up for a second, so it is called outside of transactions. Each attempt checks again.
    """
    # Not at the top: most workers load this and ask no other host.
    from outbound.http import require_public_url

    try:
        require_public_url(url, outbound_targets())
        return target_of(url).host
    except OutboundError as exc:
        raise ValidationError(details={"url": [exc.sentence]}) from exc
