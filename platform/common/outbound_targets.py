"""The policy of this instance for places that users name, made of its settings."""

from __future__ import annotations

from functools import cache

from django.conf import settings

from outbound.targets import Targets


@cache
def outbound_targets() -> Targets:
    """Return the targets of every request to a URL of a user. The machines' network is refused whatever addresses it
    has.
    """
    env = settings.ENV
    return Targets.of(env.private_receivers, [*env.refused_networks, str(env.subnet)])
