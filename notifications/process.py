"""The process `push`: one dispatcher, from the start of its Celery worker to its end.

A worker becomes it by PLATFORM_ROLE=push. Celery brings notifications of new sends and nothing else. The libraries of
the providers are imported here, when it starts: no other process pays for them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cryptography.fernet import InvalidToken
from django.conf import settings

if TYPE_CHECKING:
    from notifications.sends.attempts import PushProvider
    from notifications.sends.dispatcher import Dispatcher

logger = logging.getLogger(__name__)

_dispatcher: Dispatcher | None = None


def is_push() -> bool:
    """Whether this process sends notifications."""
    return bool(settings.ENV.role == "push")


def sending_start() -> None:
    """Start the dispatcher of this process. Raises what the database raises."""
    global _dispatcher  # noqa: PLW0603 one for each process, by design
    from notifications.sends.dispatcher import Dispatcher

    _dispatcher = Dispatcher(settings.ENV.push_threads, push_providers())
    _dispatcher.start()


def sending_wake() -> None:
    """There is something to send. Without effect in any other process."""
    if _dispatcher is not None:
        _dispatcher.wake()


def sending_end_soon() -> None:
    """Begin no further attempt; for a signal handler."""
    if _dispatcher is not None:
        _dispatcher.stop_claiming()


def sending_stop() -> None:
    """Wait for the attempts in flight. What was not begun is the next process's."""
    global _dispatcher  # noqa: PLW0603
    if _dispatcher is not None:
        _dispatcher.stop()
        _dispatcher = None


def push_providers() -> Mapping[str, PushProvider]:
    """By the provider of a device, with the keys of this instance."""
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
    """Where push services reach the operator: an address of mail, else the host of the platform."""
    env = settings.ENV
    address = env.push_contact or env.acme_contact
    return f"mailto:{address}" if address else f"https://{urlsplit(settings.BASE_URL).hostname or 'localhost'}"
