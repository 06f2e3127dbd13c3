"""The process `push`: it sends notifications also while Redis is away, as Celery brings wake-ups and nothing else.

The libraries of the providers are imported when it starts: no other process pays for them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cryptography.fernet import InvalidToken
from django.conf import settings

from common.work.processes import DispatcherProcess

if TYPE_CHECKING:
    from notifications.sends.attempts import PushProvider
    from notifications.sends.dispatcher import PushDispatcher

logger = logging.getLogger(__name__)


def _build() -> PushDispatcher:
    from notifications.sends.dispatcher import PushDispatcher

    return PushDispatcher(settings.ENV.push_threads, push_providers())


PROCESS = DispatcherProcess("push", _build)


def push_providers() -> Mapping[str, PushProvider]:
    """Return the providers by name, with the keys of this instance."""
    from notifications.models import Provider
    from notifications.providers.fcm import FcmProvider

    env = settings.ENV
    fcm = FcmProvider(env.fcm_credentials, env.push_threads)
    return {Provider.FCM: fcm, Provider.WEB_PUSH: _web_push()}


def _web_push() -> PushProvider:
    from notifications.providers.unavailable import UnavailableProvider
    from notifications.providers.web_push import WebPushProvider
    from notifications.sends.attempts import ATTEMPT_SECONDS
    from notifications.vapid import vapid_private_key

    try:
        return WebPushProvider(vapid_private_key(), push_contact(), ATTEMPT_SECONDS)
    except InvalidToken:
        logger.error("the key pair of Web Push cannot be read with the keys of this instance")
        return UnavailableProvider("The keys of this service for Web Push cannot be read: see PLATFORM_SECRET_KEY.")


def push_contact() -> str:
    """Return where push services reach the operator: an e-mail address, or the host of the platform if there is
    none.
    """
    env = settings.ENV
    address = env.push_contact or env.acme_contact
    return f"mailto:{address}" if address else f"https://{urlsplit(settings.BASE_URL).hostname or 'localhost'}"
