"""The documentation and the admin in a browser: they work, and their Content-Security-Policy refuses nothing."""

from __future__ import annotations

import base64
import time
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import pytest
from django_otp.oath import totp

from config.page_policies import ADMIN_PERMISSIONS
from supervise.files import read_env_file
from tests.served.conftest import TestInstance
from tests.vm.browser import Browser, Page

SHOWN_SECONDS = 120.0
# Reported by the browser for whatever the policy kept from being loaded or run.
VIOLATIONS = "window.violations"
RECORD = """
window.violations = [];
document.addEventListener("securitypolicyviolation", event => {
    window.violations.push(event.violatedDirective + " " + event.blockedURI);
});
"""


def opened(chromium: Browser, url: str) -> Page:
    """The page, with its violations recorded from its first script on."""
    page = chromium.open("about:blank")
    page.call("Page.addScriptToEvaluateOnNewDocument", source=RECORD)
    navigate(page, url)
    return page


def navigate(page: Page, url: str) -> None:
    page.call("Page.navigate", url=url)
    shows(page, f"location.href === {url!r} && document.readyState === 'complete'")


def shows(page: Page, condition: str) -> None:
    until = time.monotonic() + SHOWN_SECONDS
    while not page.value(f"!!({condition})"):
        assert time.monotonic() < until, (condition, page.value("document.body.innerText")[:2000])
        time.sleep(0.1)


def test_the_documentation_shows_the_routes(served: TestInstance, chromium: Browser) -> None:
    page = opened(chromium, f"{served.settings.base_url}/docs")
    # Of many routes those in view are drawn.
    page.call("Emulation.setDeviceMetricsOverride", width=1200, height=20_000, deviceScaleFactor=1, mobile=False)
    shows(page, "document.querySelectorAll('.opblock').length > 100")
    assert page.value("document.body.innerText").count("/workspace") > 20
    # A route is unfolded by the page's own script.
    page.value("document.querySelector('.opblock-summary-control').click()")
    shows(page, "document.querySelector('.opblock-body')")
    assert page.value(VIOLATIONS) == []
    assert_local(page, served)


def logged_in(served: TestInstance, chromium: Browser, path: str, *, arrives: str = "") -> Page:
    """A page of the admin, by way of the login. `arrives`: where that leads, where it is another page."""
    known = read_env_file(served.instance.credentials_file)
    page = chromium.open("about:blank")
    page.call("Network.clearBrowserCookies")
    page.call("Page.addScriptToEvaluateOnNewDocument", source=RECORD)
    navigate(page, f"{served.settings.base_url}/admin/login/?{urlencode({'next': path})}")
    assert page.value(VIOLATIONS) == []
    fields = {"username": known["ADMIN_USER"], "password": known["ADMIN_PASSWORD"]}
    for name, value in fields.items():
        page.value(f"document.querySelector('[name={name}]').value = {value!r}")
    page.value("document.querySelector('#login-form').requestSubmit()")
    shows(page, f"location.pathname + location.search === {(arrives or path)!r} && document.readyState === 'complete'")
    return page


def test_the_admin_is_logged_in_to_and_used(served: TestInstance, chromium: Browser) -> None:
    page = logged_in(served, chromium, "/admin/accounts/account/")
    shows(page, "document.querySelector('#result_list')")
    # Alpine has run: what it hides until then is shown.
    shows(page, "window.Alpine && !document.documentElement.hasAttribute('x-cloak')")
    assert page.value(VIOLATIONS) == []
    navigate(page, f"{served.settings.base_url}/admin/accounts/credential/add/")
    # The account is chosen in a select2 field, whose choices are fetched.
    shows(page, "document.querySelector('.select2-selection')")
    assert page.value(VIOLATIONS) == []
    assert_local(page, served)


@pytest.mark.parametrize("model", ["sandboxes/sandbox", "workspaces/workspace"])
def test_staff_open_the_terminal_page(served: TestInstance, chromium: Browser, model: str) -> None:
    """As far as the fake driver goes, whose machines have no terminals."""
    api = served.api()
    if model == "sandboxes/sandbox":
        made = api.call("POST", "/sandbox", 201, json={"name": "Page", "image": "localhost/tiny:1"})["sandbox"]
    else:
        made = api.create("localhost/tiny:1")
    id = made["id"]
    page = logged_in(served, chromium, f"/admin/{model}/_actions/terminal/?row={id}")
    page.value("document.querySelector('[name=reason]').value = 'why'")
    page.value("document.querySelector('#confirm-action').requestSubmit()")
    shows(page, f"location.pathname === '/s/{id}/terminal' && document.querySelector('#status')")
    shows(page, "document.querySelector('#status').textContent.includes('Machines of the fake driver')")
    assert page.value("location.hash") == ""
    assert page.value(VIOLATIONS) == []
    assert_local(page, served)


def submit_code(page: Page, code: str) -> None:
    page.value(f"document.querySelector('[name=code]').value = {code!r}")
    page.value("document.querySelector('#second-factor-form').requestSubmit()")


def test_staff_set_up_a_second_factor_and_log_in_with_it(served: TestInstance, chromium: Browser) -> None:
    page = logged_in(served, chromium, "/admin/second-factor/setup/")
    assert page.value("document.querySelector('#qr svg').getBoundingClientRect().width") > 100
    secret = page.value("document.querySelector('#secret').textContent")
    submit_code(page, f"{totp(base64.b32decode(secret)):06d}")
    shows(page, "document.querySelectorAll('#recovery-codes li').length === 10")
    codes = page.value("[...document.querySelectorAll('#recovery-codes li')].map(e => e.textContent)")
    assert page.value(VIOLATIONS) == []
    page = logged_in(
        served, chromium, "/admin/accounts/plan/", arrives="/admin/second-factor/?next=%2Fadmin%2Faccounts%2Fplan%2F"
    )
    assert page.value(VIOLATIONS) == []
    submit_code(page, codes[0])
    shows(page, "location.pathname === '/admin/accounts/plan/' && document.querySelector('#result_list')")
    navigate(page, f"{served.settings.base_url}/admin/second-factor/setup/")
    page.value(f"document.querySelector('[name=code]').value = {codes[1]!r}")
    page.value("document.querySelector('[value=remove]').click()")
    shows(page, "document.querySelector('#qr svg')")
    assert page.value(VIOLATIONS) == []
    assert_local(page, served)


@pytest.mark.parametrize("by", ["path", "host"])
def test_the_terminal_page_is_served_by_path_and_by_host(served: TestInstance, chromium: Browser, by: str) -> None:
    base = served.settings.base_url
    url = f"{base}/s/sbx_2222222222222222/terminal"
    if by == "host":
        url = served.settings.public_url.replace("{hash}", "sbx-2222222222222222") + "/terminal"
    page = opened(chromium, url)
    shows(page, "document.querySelector('#ask:not([hidden])')")
    page.value("document.querySelector('#token').value = 'sbt_no'; document.querySelector('#ask').requestSubmit()")
    shows(page, "document.querySelector('#status').textContent.includes('missing or unknown')")
    assert page.value(VIOLATIONS) == []


def assert_local(page: Page, served: TestInstance) -> None:
    loaded: list[str] = page.value("performance.getEntriesByType('resource').map(e => e.name)")
    assert len(loaded) > 3
    assert {urlsplit(url).netloc for url in loaded if not url.startswith("data:")} == {
        urlsplit(served.settings.base_url).netloc
    }


@pytest.mark.parametrize("path", ["/docs", "/docs?script=", "/admin/login/", "/admin/", "/admin/second-factor/setup/"])
def test_pages_may_not_be_framed_and_load_nothing_from_elsewhere(served: TestInstance, path: str) -> None:
    headers = httpx.get(served.settings.base_url + path).headers
    policy: dict[str, Any] = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert (headers["x-frame-options"], policy["frame-ancestors"]) == ("DENY", "'none'")
    assert policy["default-src"] in ("'none'", "'self'")
    assert "unsafe-inline" not in policy["script-src"]
    assert not [source for source in policy.values() if "http" in source or "*" in source]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == headers["cross-origin-opener-policy"] == "same-origin"
    if path.startswith("/admin/"):
        assert "no-store" in headers["cache-control"]
        assert headers["permissions-policy"] == ADMIN_PERMISSIONS
