"""The admin of an instance as its administrator uses it, without a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from supervise.files import read_env_file
from tests.staff.pages import ALERT, action_url
from tests.vm.instances import TestInstance

CSRF = re.compile(r'name="csrfmiddlewaretoken" value="(\w+)"')


@contextmanager
def logged_in_staff(instance: TestInstance) -> Iterator[httpx.Client]:
    """A client with a session."""
    known = read_env_file(instance.instance.credentials_file)
    fields = {"username": known["ADMIN_USER"], "password": known["ADMIN_PASSWORD"]}
    with httpx.Client(base_url=instance.settings.base_url, timeout=120, trust_env=False) as client:
        client.headers["Referer"] = str(client.base_url)
        token = _csrf(client.get("/admin/login/"))
        answer = client.post("/admin/login/", data={**fields, "csrfmiddlewaretoken": token})
        assert answer.status_code == 302, answer.text
        yield client


def confirm_action(client: httpx.Client, model: str, action: str, key: str, **fields: str) -> httpx.Response:
    """Open the confirmation page of an action on one row, and send it."""
    page = client.get(action_url(model, action, key))
    submission = ALERT.search(page.text)
    assert submission, page.text
    sent = {"row": key, "submission": submission[1], "csrfmiddlewaretoken": _csrf(page), **fields}
    return client.post(action_url(model, action), data=sent)


def _csrf(page: httpx.Response) -> str:
    found = CSRF.search(page.text)
    assert found, page.text
    return found[1]
