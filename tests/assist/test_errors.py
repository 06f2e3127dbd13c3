"""Whatever is wrong with a request: the form of these routes, one of the five codes, and the rate headers."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from django.conf import LazySettings
from django.test import Client

from assist import requests
from assist.models import Call, DayCount
from assist.services import NewApiKey, api_key_create, api_key_delete
from common.request_origin import NO_ORIGIN
from namespaces import services as namespaces
from namespaces.models import Namespace
from tests.asgi import Request
from tests.assist.conftest import BODIES, assert_refused, called, header, request_of, run
from tests.assist.model_server import ModelServer
from tests.callers import Caller

pytestmark = pytest.mark.django_db(transaction=True)
EVERY_PATH = ["/v1/blurs/generate", "/v1/blurs/debug", "/v1/blurs/optimize", "/v1/blurs/unknown", "/v1/blurs"]


class Raw(Request):
    """With bytes as they are for a body; `announced`: another length than they have; None: no length at all."""

    def __init__(self, key: str, body: bytes, path: str = "/v1/blurs/generate", announced: int | None = -1) -> None:
        super().__init__(path, {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}, "POST")
        self._data = body
        if announced is not None:
            length = len(body) if announced < 0 else announced
            self.scope["headers"].append((b"content-length", b"%d" % length))


METHODS = ["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE", "POST"]


@pytest.mark.parametrize("sent", ["", "key_unknown", "snd_x", "\x00", "key_" + "x" * 5000])
def test_without_a_key_every_path_and_method_is_refused_as_such(sent: str) -> None:
    headers = {"Authorization": f"Bearer {sent}"} if sent else {}
    for found in run(*(Request(path, headers, method) for path in EVERY_PATH for method in METHODS)):
        if found.scope["method"] == "HEAD":
            assert found.status == 401
        else:
            assert_refused(found, 401, "INVALID_API_KEY")
        assert header(found, "X-RateLimit-Remaining") == "0"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_another_method_is_refused_and_the_right_one_named(key: NewApiKey, method: str) -> None:
    (found,) = run(Request("/v1/blurs/debug", {"Authorization": f"Bearer {key.key}"}, method))
    assert_refused(found, 405, "INVALID_REQUEST")
    assert header(found, "Allow") == "POST"
    assert header(found, "X-RateLimit-Remaining") == "1000"


@pytest.mark.parametrize("path", ["/v1/blurs", "/v1/blurs/", "/v1/blurs/generate/", "/v1/blurs/x/y", "/v1/blurs/%00"])
def test_an_unknown_path_is_refused_in_the_same_form(key: NewApiKey, path: str) -> None:
    (found,) = run(Request(path, {"Authorization": f"Bearer {key.key}"}, "POST", {}))
    assert_refused(found, 404, "INVALID_REQUEST")


@pytest.mark.parametrize("path", EVERY_PATH)
def test_a_websocket_is_refused_in_the_same_form(path: str) -> None:
    found = Request(path, {"Connection": "Upgrade", "Upgrade": "websocket"})
    found.scope["type"] = "websocket"
    run(found)
    assert_refused(found, 404, "INVALID_REQUEST")


BROKEN = [b"{", b"nothing", b"[1]", b'"x"', b'{"prompt": NaN}', b"\xff\xfe", b'{"prompt": "\\ud800"}', b"[" * 5000]


@pytest.mark.parametrize("body", BROKEN)
def test_broken_json_is_refused(key: NewApiKey, model: ModelServer, body: bytes) -> None:
    (found,) = run(Raw(key.key, body))
    assert_refused(found, 400, "INVALID_REQUEST")
    assert model.exchanges == []


WRONG_FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("generate", {}, "prompt"),
    ("generate", {"prompt": ""}, "prompt"),
    ("generate", {"prompt": 1}, "prompt"),
    ("generate", {"prompt": "p", "language": ["python"]}, "language"),
    ("generate", {"prompt": "p", "webhook_url": 5}, "webhook_url"),
    ("generate", {"prompt": "p", "webhook_url": "http://example.com/"}, "webhook_url"),
    ("generate", {"prompt": "p", "webhook_url": "https://127.0.0.1/"}, "webhook_url"),
    ("generate", {"prompt": "p", "webhook_url": "https://169.254.169.254/latest"}, "webhook_url"),
    ("generate", {"prompt": "p", "webhook_url": "https://a:b@example.com/"}, "webhook_url"),
    ("generate", {"prompt": "p", "events": ["vm.stopped"]}, "events"),
    ("debug", {"error": "e"}, "code"),
    ("optimize", {"code": "c"}, "type"),
    ("optimize", {"code": "c", "type": "speed"}, "type"),
    ("optimize", {"code": "c", "type": "bundle", "metrics": 1}, "metrics"),
]


@pytest.mark.parametrize(("route", "body", "field"), WRONG_FIELDS)
def test_a_wrong_field_is_named_and_does_not_count(
    key: NewApiKey, model: ModelServer, route: str, body: dict[str, Any], field: str
) -> None:
    found = called(key, route, body)
    error = assert_refused(found, 400, "INVALID_REQUEST")
    assert any(name.startswith(field) for name in error["details"])
    assert header(found, "X-RateLimit-Remaining") == "1000"
    assert DayCount.objects.count() == Call.objects.count() == len(model.exchanges) == 0


def test_a_body_above_ten_mebibytes_is_refused_with_the_figures_of_the_day(key: NewApiKey, model: ModelServer) -> None:
    nearly = json.dumps({"prompt": "x" * ((10 << 20) - 100)}).encode()
    assert run(Raw(key.key, nearly))[0].status == 200
    large = json.dumps({"prompt": "x" * (10 << 20)}).encode()
    for sent, left in ((key.key, "999"), ("", "0"), ("key_unknown", "0")):
        for request in (Raw(sent, large), Raw(sent, large, announced=None)):
            run(request)
            assert_refused(request, 413, "INVALID_REQUEST")
            assert header(request, "X-RateLimit-Remaining") == left
            assert header(request, "X-RateLimit-Limit") == ("1000" if sent == key.key else "0")


def test_a_large_body_of_an_unknown_sender_is_not_stored() -> None:
    (found,) = run(Raw("key_unknown", json.dumps({"prompt": "x" * 100_000}).encode()))
    assert_refused(found, 401, "INVALID_API_KEY")


@pytest.mark.parametrize("length", ["x", "-5", "99999999999999999999999"])
def test_a_length_that_is_none_is_refused(key: NewApiKey, length: str) -> None:
    request = Raw(key.key, b"{}", announced=None)
    request.scope["headers"].append((b"content-length", length.encode()))
    run(request)
    assert (request.status in (400, 413), set(request.json())) == (True, {"error"})


def test_an_unknown_host_is_refused_in_the_same_form(key: NewApiKey) -> None:
    request = request_of(key, Host="elsewhere.example")
    request.scope["headers"] = [item for item in request.scope["headers"] if item[1] != b"testserver"]
    run(request)
    assert_refused(request, 400, "INVALID_REQUEST")


def test_a_fault_of_the_platform_is_a_failed_generation(
    key: NewApiKey, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("planted-words")

    monkeypatch.setattr(requests, "first_question", broken)
    with caplog.at_level(logging.CRITICAL):
        error = assert_refused(called(key), 502, "GENERATION_FAILED")
    assert error["message"] == "An internal error occurred."


def test_the_api_process_answers_in_the_same_form(client: Client, db: None) -> None:
    """Where a request reaches it, past the edge."""
    found = client.post("/v1/blurs/generate", data="{}", content_type="application/json")
    assert (found.status_code, found.json()["error"]["code"]) == (401, "INVALID_API_KEY")


@pytest.mark.parametrize("change", ["deleted", "inactive"])
def test_a_key_that_ended_is_refused_at_once(api: Caller, key: NewApiKey, model: ModelServer, change: str) -> None:
    assert called(key).status == 200
    if change == "deleted":
        api_key_delete(api_key=key.api_key, actor="test")
    else:
        api.account.is_active = False
        api.account.save()
    assert_refused(called(key), 401, "INVALID_API_KEY")


def test_the_key_of_a_suspended_namespace_is_refused(api: Caller, model: ModelServer) -> None:
    space = Namespace.objects.create(account=api.account, name="Other", slug="other")
    key = api_key_create(account=api.account, name="", namespace=space, actor="test")
    namespaces.namespace_suspend(namespace=space, actor="test", origin=NO_ORIGIN)
    assert_refused(called(key), 403, "INVALID_REQUEST")
    assert model.exchanges == []


@pytest.mark.parametrize("route", BODIES)
def test_client_credentials_are_no_api_key(api: Caller, route: str) -> None:
    (found,) = run(Request(f"/v1/blurs/{route}", api.headers, "POST", BODIES[route]))
    assert_refused(found, 401, "INVALID_API_KEY")


def test_the_database_being_away_is_no_500(
    key: NewApiKey, settings: LazySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import OperationalError

    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(requests, "require_key", away)
    found = called(key)
    assert_refused(found, 503, "GENERATION_FAILED")
    assert header(found, "Retry-After") == "5"
