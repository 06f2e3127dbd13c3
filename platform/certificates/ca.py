"""A certificate authority, asked by ACME (RFC 8555) through the library `acme`, one bounded request at a time.

What it answers is not trusted: each request has a deadline and a limit of bytes (outbound/http.py), follows no
redirect, and
goes only to the operator's directory's own host and port or to a public https address. Knows no rows.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import josepy
import requests
from acme import challenges, errors, messages
from acme.client import ClientNetwork, ClientV2
from cryptography import x509

from certificates.ca_errors import CaError, ca_error_of
from certificates.keys import key_from_pem
from edge.challenges import TOKEN
from outbound.errors import OutboundError
from outbound.http import send_request
from outbound.targets import Targets

REQUEST_SECONDS = 12.0
_USER_AGENT = "microvm-workspaces"
_LONGEST_URL = 2048
_LONGEST_PAUSE = 86400.0
# The most authorizations of an order, which is for one name.
_MOST_AUTHORIZATIONS = 4


@dataclass(frozen=True, slots=True)
class CaAccess:
    """How a CA is reached: its directory, the account's key (PEM) and URL, which hosts and whose TLS are accepted."""

    directory: str
    key: str
    account_url: str
    policy: Targets
    trust: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """`pause`: seconds that the CA asks to wait before the next look; None if it does not say."""

    url: str
    status: str
    error: str
    authorizations: tuple[str, ...]
    finalize: str
    certificate: str
    pause: float | None


@dataclass(frozen=True, slots=True)
class Challenge:
    """The HTTP-01 challenge of a name: `content` is to be found under `token`."""

    url: str
    token: str
    content: str
    status: str
    authorization_status: str
    error: str


class _Network(ClientNetwork):
    """The library's signing and nonces over requests of our own."""

    def __init__(self, access: CaAccess, until: float) -> None:
        key = josepy.JWKEC(key=key_from_pem(access.key))
        account = _registration(access.account_url) if access.account_url else None
        super().__init__(key, account, alg=josepy.ES256, user_agent=_USER_AGENT)
        self._access = access
        self._until = until
        self.pause: float | None = None
        self.status = 0  # of the last answer

    def _send_request(self, method: str, url: str, *args: Any, **kwargs: Any) -> requests.Response:
        seconds = min(self._until - time.monotonic(), REQUEST_SECONDS)
        if seconds <= 0:
            raise OutboundError("timeout")
        data = kwargs.get("data") or b""
        headers = {"User-Agent": self.user_agent, **kwargs.get("headers", {})}
        answer = send_request(
            method,  # type: ignore[arg-type]  # the library's methods are these three
            url,
            body=data.encode() if isinstance(data, str) else data,
            headers=headers,
            deadline_seconds=seconds,
            policy=self._access.policy,
            trust=self._access.trust,
        )
        self.status = answer.status
        if answer.truncated:
            raise OutboundError("too_large")
        if 300 <= answer.status < 400:
            raise OutboundError("refused_target")
        self.pause = pause_of(answer.headers.get("retry-after", ""))
        return _response(url, answer.status, dict(answer.headers), answer.body)


def _response(url: str, status: int, headers: dict[str, str], body: bytes) -> requests.Response:
    made = requests.Response()
    made.url = url
    made.status_code = status
    made.headers.update(headers)
    made.encoding = "utf-8"
    made._content = body
    return made


def _registration(url: str) -> messages.RegistrationResource:
    return messages.RegistrationResource(body=messages.Registration(), uri=url)


class CaClient:
    """The requests of one step, which end by `until` (`time.monotonic`). Every method raises CaError and nothing
    else."""

    def __init__(self, access: CaAccess, until: float) -> None:
        self._network = _Network(access, until)
        self._url = access.directory
        self._found: messages.Directory | None = None

    def read_directory(self) -> None:
        """Read the directory, before anything is asked that counts."""
        with self._ca_errors():
            assert self._directory["newOrder"]  # noqa: S101 - raises if it is missing

    def register_account(self, contact: str) -> tuple[str, bool]:
        """Return the account's URL, the same for the same key at each call, and whether the account existed before."""
        with self._ca_errors():
            new = messages.NewRegistration.from_data(email=contact or None, terms_of_service_agreed=True)
            try:
                made = ClientV2(self._directory, self._network).new_account(new)
                return _url(made.uri), False
            except errors.ConflictError as error:
                url = _url(error.location)
                self._network.account = _registration(url)
                return url, True

    def update_contact(self, account_url: str, contact: str) -> None:
        """Give the CA another address of the account, or (empty) none any more."""
        with self._ca_errors():
            addresses = (f"mailto:{contact}",) if contact else ()
            self._post(account_url, messages.UpdateRegistration(contact=addresses))

    def order_place(self, name: str) -> Order:
        """Place a new order."""
        with self._ca_errors():
            identifier = messages.Identifier(typ=messages.IDENTIFIER_FQDN, value=name)
            response = self._post(self._directory["newOrder"], messages.NewOrder(identifiers=[identifier]))
            return self._order(_url(response.headers.get("Location")), response)

    def order_find(self, name: str) -> Order | None:
        """Return an unfinished order of the account for this name, of those that the CA lists first; few CAs list
        any.
        """
        with self._ca_errors():
            account = self._post(self._network.account.uri if self._network.account else "").json()
            if not account.get("orders"):
                return None
            listed = self._post(_url(account["orders"])).json().get("orders", [])
            for url in [_url(each) for each in listed[-20:]]:
                response = self._post(url)
                values = [each.get("value") for each in response.json().get("identifiers", [])]
                if values == [name] and response.json().get("status") in ("pending", "ready"):
                    return self._order(url, response)
            return None

    def order_read(self, url: str) -> Order:
        """Return the order as it is now."""
        with self._ca_errors():
            return self._order(url, self._post(url))

    def read_challenge(self, authorization: str) -> Challenge:
        """Return the HTTP-01 challenge of an authorization."""
        with self._ca_errors():
            body = messages.Authorization.from_json(self._post(authorization).json())
            for each in body.challenges:
                if isinstance(each.chall, challenges.HTTP01):
                    return self._challenge(each, str(body.status.name))
            raise CaError("The CA offers no HTTP challenge for this name.")

    def answer_challenge(self, url: str) -> None:
        """Have the CA look for the token."""
        with self._ca_errors():
            self._post(url, challenges.HTTP01Response())

    def order_finalize(self, order: Order, csr: bytes) -> Order:
        """Send the certificate request (PEM)."""
        with self._ca_errors():
            request = messages.CertificateRequest(csr=x509.load_pem_x509_csr(csr))
            return self._order(order.url, self._post(order.finalize, request))

    def read_chain(self, url: str) -> str:
        """Return the certificate and its chain, as sent."""
        with self._ca_errors():
            return self._post(url).text

    @property
    def _directory(self) -> messages.Directory:
        if self._found is None:
            self._found = ClientV2.get_directory(self._url, self._network)
        return self._found

    def _post(self, url: str, body: Any = None) -> requests.Response:
        """Send a request; without a body it is a POST-as-GET."""
        return self._network.post(url, body, new_nonce_url=self._directory["newNonce"])

    def _order(self, url: str, response: requests.Response) -> Order:
        body = messages.Order.from_json(response.json())
        if body.status is None or len(body.authorizations or ()) > _MOST_AUTHORIZATIONS:
            raise errors.ClientError("an order without a status, or of more than one name")
        return Order(
            url,
            str(body.status.name),
            str(ca_error_of(body.error)) if body.error else "",
            tuple(_url(each) for each in body.authorizations or ()),
            body.finalize or "",
            body.certificate or "",
            self._network.pause,
        )

    def _challenge(self, found: messages.ChallengeBody, authorization_status: str) -> Challenge:
        token = found.chall.encode("token")
        if not TOKEN.fullmatch(token):
            raise CaError("The CA's token is not valid.")
        error = str(ca_error_of(found.error)) if found.error else ""
        content = found.chall.key_authorization(self._network.key)
        return Challenge(_url(found.uri), token, content, str(found.status.name), authorization_status, error)

    @contextmanager
    def _ca_errors(self) -> Iterator[None]:
        """Raise as CaError whatever the library raises for what a CA sent."""
        try:
            yield
        except CaError:
            raise
        except Exception as error:  # an answer of a strange form ends in any type of error
            raise ca_error_of(error, self._network.status, self._network.pause) from error


def _url(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_URL:
        raise errors.ClientError("no URL")
    return value


def pause_of(header: str) -> float | None:
    """Return seconds of a Retry-After header, a day at most; None if it is missing or not valid."""
    if re.fullmatch(r"[0-9]{1,9}", header):
        return min(float(header), _LONGEST_PAUSE)
    try:
        until = datetime.strptime(header, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    except ValueError:
        return None
    return min(max((until - datetime.now(UTC)).total_seconds(), 0.0), _LONGEST_PAUSE)
