"""Firebase Cloud Messaging by firebase-admin: one message to one registration token.

Errors are known by the library's exception classes, never by their texts. The library's own actions are bounded: it
would post a message once more that had no answer, which a device may then get twice, and it would sleep as long as an
answer asks for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import firebase_admin
from django.utils import timezone
from firebase_admin import credentials, exceptions, messaging
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import AuthorizedSession, Request
from requests import Session
from urllib3.util import Retry

from notifications.content import FCM_BYTES, Content, TooLarge, fitted
from notifications.providers.bounded_answers import BoundedAdapter
from notifications.sends import results
from notifications.sends.results import DELIVERED, Result, failure
from webhooks.schedule import retry_after_seconds

logger = logging.getLogger(__name__)

NOT_CONFIGURED: Final = "This service has no credentials for FCM: its operator sets PLATFORM_FCM_CREDENTIALS."
NOT_READABLE: Final = "The file of PLATFORM_FCM_CREDENTIALS is not a service account that can be read."
PAUSE_NAME: Final = "fcm"
ORIGIN: Final = "https://fcm.googleapis.com"
# Each request; a 503 is tried again twice, after 0 and 1 s. An answer within the time that a send waits is counted.
CONNECT_SECONDS, ANSWER_SECONDS = 2.0, 10.0
UNAVAILABLE_RETRIES: Final = 2
# A failed login is not repeated by every device of a send.
LOGIN_PAUSE_SECONDS = 5.0
_CODES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (messaging.UnregisteredError, results.NOT_REGISTERED),
    (messaging.ThirdPartyAuthError, results.THIRD_PARTY_AUTH),
    (messaging.SenderIdMismatchError, results.MISMATCHED),
    (messaging.QuotaExceededError, results.RATE_EXCEEDED),
    (exceptions.ResourceExhaustedError, results.RATE_EXCEEDED),
    (exceptions.UnauthenticatedError, results.THIRD_PARTY_AUTH),
    (exceptions.PermissionDeniedError, results.THIRD_PARTY_AUTH),
    (exceptions.InvalidArgumentError, results.INVALID),
    (exceptions.DeadlineExceededError, results.DEADLINE),
    (exceptions.UnavailableError, results.UNAVAILABLE),
    (exceptions.InternalError, results.UNAVAILABLE),
)
_WITH_RETRY_AFTER: Final = frozenset({results.RATE_EXCEEDED, results.UNAVAILABLE})


class _Retries(Retry):
    """A 503 is tried again, unless it says when: that is kept for all messages of the account."""

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        return not has_retry_after and bool(super().is_retry(method, status_code, has_retry_after))


class FcmProvider:
    """Sends in any number of threads. `path`: of the service account's file; None: FCM is not configured."""

    def __init__(self, path: Path | None, threads: int) -> None:
        self._path, self._threads = path, threads
        self._app: firebase_admin.App | None = None
        self._lock = threading.Lock()
        self._refused_until = 0.0
        self._refusal: Result | None = None

    def pause_name(self, address: Mapping[str, Any]) -> str:
        """Return the name of what a `Retry-After` pauses: there is one FCM."""
        return PAUSE_NAME

    def send(self, address: Mapping[str, Any], content: Content) -> Result:
        """Send one message. Nothing that an address or FCM can cause is raised."""
        if self._path is None:
            return failure(results.THIRD_PARTY_AUTH, NOT_CONFIGURED)
        try:
            fit = fitted(content, FCM_BYTES)
        except TooLarge:
            return failure(results.TOO_LARGE)
        refusal = self._login()
        return refusal or self._send(address["fcm_token"], fit)

    def _send(self, token: str, content: Content) -> Result:
        notification = messaging.Notification(title=content.title or None, body=content.body or None)
        message = messaging.Message(notification=notification, data=dict(content.data))
        # Devices register with registration tokens (specification). As an argument each costs a warning that advises
        # installation ids, which are something else.
        message.token = token
        try:
            messaging.send(message, app=self._app)
        except exceptions.FirebaseError as error:
            return _failure_of(error)
        except GoogleAuthError as error:
            return _refused_login(error)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):  # nothing that FCM answers
            return failure(results.UNKNOWN)
        return DELIVERED

    def _login(self) -> Result | None:
        """Return an access token that is valid, fetched by one thread at a time; None if there is one."""
        with self._lock:
            if self._refusal is not None and time.monotonic() < self._refused_until:
                return self._refusal
            try:
                app = self._app = self._app or self._open()
                credential = app.credential.get_credential()
                if not credential.valid:
                    credential.refresh(_bounded_request())
                self._refusal = None
            except GoogleAuthError as error:
                self._refuse(_refused_login(error))
            except (OSError, ValueError) as error:
                logger.error("FCM: %s", type(error).__name__)
                self._refuse(failure(results.THIRD_PARTY_AUTH, NOT_READABLE))
            return self._refusal

    def _refuse(self, refusal: Result) -> None:
        self._refusal, self._refused_until = refusal, time.monotonic() + LOGIN_PAUSE_SECONDS

    def _open(self) -> firebase_admin.App:
        """Raise OSError, ValueError (no file, no service account)."""
        credential = credentials.Certificate(str(self._path))
        options = {"httpTimeout": (CONNECT_SECONDS, ANSWER_SECONDS)}
        app = firebase_admin.initialize_app(credential, options, name=f"platform-{id(self)}")
        # The library has no other way to say how its requests are repeated.
        session: AuthorizedSession = messaging._get_messaging_service(app)._client.session
        retries = _Retries(
            connect=1,
            read=False,
            status=UNAVAILABLE_RETRIES,
            status_forcelist=[503],
            raise_on_status=False,
            backoff_factor=0.5,
            allowed_methods=None,
        )
        session.mount(ORIGIN, BoundedAdapter(pool_maxsize=self._threads, max_retries=retries))
        session.max_redirects = 0
        # If FCM refuses an access token the library fetches another one.
        _bound_logins(session._auth_request_session)
        return app

    def close(self) -> None:
        """End its connections."""
        if self._app is not None:
            firebase_admin.delete_app(self._app)
            self._app = None


def _bounded_request() -> Any:
    request = Request(_bound_logins(Session()))
    return lambda *args, **kwargs: request(*args, **{**kwargs, "timeout": (CONNECT_SECONDS, ANSWER_SECONDS)})


def _bound_logins(session: Session) -> Session:
    for scheme in ("https://", "http://"):
        session.mount(scheme, BoundedAdapter())
    session.max_redirects = 0
    return session


def _refused_login(error: GoogleAuthError) -> Result:
    logger.error("FCM: the login failed: %s", type(error).__name__)
    return failure(results.UNAVAILABLE if isinstance(error, TransportError) else results.THIRD_PARTY_AUTH)


def _failure_of(error: exceptions.FirebaseError) -> Result:
    code = next((code for kind, code in _CODES if isinstance(error, kind)), results.UNKNOWN)
    answer = error.http_response
    if answer is None or code not in _WITH_RETRY_AFTER:
        return failure(code)
    return failure(code, retry_after=retry_after_seconds(answer.headers.get("Retry-After"), timezone.now()))
