"""Whether a URL may be the target of a webhook."""

from __future__ import annotations

from common.errors import ValidationError
from common.outbound_targets import outbound_targets
from outbound.http import OutboundError, require_public_url
from outbound.urls import target_of


def required_host(url: str) -> str:
    """The host that a URL names. Raises ValidationError, which names `url`, for one that is never connected to.

    May look a name up for a second, so it is called outside of transactions. Each attempt checks again.
    """
    try:
        require_public_url(url, outbound_targets())
        return target_of(url).host
    except OutboundError as exc:
        raise ValidationError(details={"url": [exc.sentence]}) from exc
