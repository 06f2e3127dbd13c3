"""The client's address and User-Agent of a request."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.test import RequestFactory

from common.request_origin import RequestOrigin, request_origin
from tests.callers import edge_header


def origin(**meta: str) -> RequestOrigin:
    return request_origin(RequestFactory().get("/", **meta))  # type: ignore[arg-type]


def test_the_edges_entry_counts_and_the_clients_claims_do_not() -> None:
    found = origin(HTTP_X_EDGE=edge_header("1.1.1.1, 203.0.113.9"), HTTP_USER_AGENT="curl/8")
    assert found == RequestOrigin("203.0.113.9", "curl/8")
    assert origin(HTTP_X_FORWARDED_FOR="1.1.1.1", REMOTE_ADDR="192.0.2.4").ip_address == "192.0.2.4"


@pytest.mark.parametrize("joined", ["{},9.9.9.9", "9.9.9.9,{}", "{},{} x", "lie localhost 9.9.9.9 lie", "", " "])
def test_a_header_to_which_something_was_joined_is_not_believed(joined: str) -> None:
    value = joined.replace("{}", edge_header("203.0.113.9"))
    assert origin(HTTP_X_EDGE=value, HTTP_X_FORWARDED_FOR="9.9.9.9", REMOTE_ADDR="192.0.2.4").ip_address == ""


def test_without_an_edge_it_is_the_peers_address() -> None:
    assert origin(REMOTE_ADDR="192.0.2.4") == RequestOrigin("192.0.2.4", "")


@pytest.mark.parametrize("address", ["", "unix:", "a" * 300])
def test_what_is_no_address_is_left_out(address: str) -> None:
    assert origin(REMOTE_ADDR=address, HTTP_USER_AGENT="x" * 1000) == RequestOrigin("", "x" * 255)


def test_behind_another_proxy_it_is_the_nearest_public_address(monkeypatch: pytest.MonkeyPatch) -> None:
    class BehindProxy:
        behind_proxy = True

        def __getattr__(self, name: str) -> Any:
            return getattr(settings.ENV, name)

    monkeypatch.setattr(settings, "ENV", BehindProxy())
    assert origin(HTTP_X_EDGE=edge_header("1.1.1.1, 8.8.8.8, 10.0.0.1")).ip_address == "8.8.8.8"
