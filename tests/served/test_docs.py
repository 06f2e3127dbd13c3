"""The documentation as its reader uses it: the groups in their order, credentials given once, a route tried."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from config.api_groups import GROUPS, group_of
from supervise.files import read_env_file
from tests.served.test_browser import VIOLATIONS, opened, shows
from tests.vm.browser import Browser, Page
from tests.vm.instances import TestInstance

# The specification's sections of endpoints, in its order. Groups of what it does not have may stand between them.
SECTIONS = [
    *("Workspaces", "Resources", "Usage and activity", "Metrics", "Logs", "Filesystem", "Images", "Metadata"),
    *("Lifecycle and power", "Sandboxes", "Pages", "Notifications", "Namespaces", "Credit quotas", "Code assistance"),
    "CDN",
]
LIST = "[...document.querySelectorAll('.opblock-get')].find(e => e.querySelector('[data-path=\"/workspace\"]'))"
# The field below the name of a credential, in the dialog.
FIELD = "[...document.querySelectorAll('.auth-container')].find(e => e.querySelector('h4 code').textContent === {!r})"
ANSWER = f"{LIST}.querySelector('.live-responses-table tbody .response-col_status')"


@pytest.fixture
def docs(served: TestInstance, chromium: Browser) -> Iterator[Page]:
    """The page, so high that every group is drawn. At the end: nothing was complained of, or asked of other hosts."""
    page = opened(chromium, "about:blank")
    page.record()
    page.call("Emulation.setDeviceMetricsOverride", width=1200, height=20_000, deviceScaleFactor=1, mobile=False)
    page.call("Page.navigate", url=f"{served.settings.base_url}/docs")
    # It draws one group after another.
    shows(page, f"document.querySelector('.opblock-tag[data-tag=\"{GROUPS[-1].name}\"]')")
    shows(page, "[...document.querySelectorAll('.opblock-tag, [data-path]')].pop().dataset.path !== undefined")
    yield page
    assert page.value(VIOLATIONS) == []
    assert page.complaints() == []
    assert {urlsplit(sent["url"]).netloc for sent in page.requests()} == {urlsplit(served.settings.base_url).netloc}


def give(page: Page, name: str, value: str) -> None:
    """Type a credential into the dialog of authorisation and confirm it."""
    box = FIELD.format(name)
    page.value(f"{box}.querySelector('input').focus()")
    page.call("Input.insertText", text=value)
    page.value(f"{box}.querySelector('button.authorize').click()")
    shows(page, f"{box}.textContent.includes('Authorized')")


def tried(page: Page) -> str:
    """The status that the page shows of `GET /workspace`, sent by its own buttons."""
    for button in (".opblock-summary-control", ".try-out__btn", "button.execute"):
        shows(page, f"{LIST}.querySelector({button!r})")
        page.value(f"{LIST}.querySelector({button!r}).click()")
    shows(page, ANSWER)
    return str(page.value(f"{ANSWER}.textContent.trim()"))


def test_groups_are_shown_in_the_order_of_the_specification(docs: Page) -> None:
    shown = docs.value(
        "[...document.querySelectorAll('.opblock-tag, [data-path]')].map(e => [e.dataset.tag, e.dataset.path])"
    )
    groups: dict[str, list[str]] = {}
    for tag, path in shown:
        groups.setdefault(tag or group_of(path), []).extend([path] if path else [])
        # Every route stands below the heading of its group.
        assert list(groups)[-1] == (tag or group_of(path))
    assert list(groups) == [group.name for group in GROUPS]
    assert [name for name in groups if name in SECTIONS] == SECTIONS
    assert all(groups.values())


def test_a_route_is_tried_with_the_credentials_of_the_dialog(docs: Page, served: TestInstance, box: str) -> None:
    known = read_env_file(served.instance.credentials_file)
    docs.value("document.querySelector('.auth-wrapper > .authorize').click()")
    shows(docs, "document.querySelector('.auth-container')")
    give(docs, "clientId", known["CLIENT_ID"])
    give(docs, "clientSecret", known["CLIENT_SECRET"])
    docs.value("document.querySelector('.btn-done').click()")
    shows(docs, "!document.querySelector('.auth-container')")
    assert tried(docs) == "200"
    listed = docs.value(f"{LIST}.querySelector('.live-responses-table .highlight-code').textContent")
    shown = json.loads(listed[listed.index("{") :])
    assert box in [workspace["id"] for workspace in shown["workspaces"]]
    (sent,) = [each for each in docs.requests() if urlsplit(each["url"]).path == "/workspace"]
    headers = {name.lower(): value for name, value in sent["headers"].items()}
    assert (headers["x-client-id"], headers["x-client-secret"]) == (known["CLIENT_ID"], known["CLIENT_SECRET"])
    kept = "JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie"
    assert known["CLIENT_SECRET"] not in docs.value(kept)
