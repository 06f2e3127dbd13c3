"""The most important pages of the admin in a browser: wide and narrow, light and dark, without an error.

With CONSOLE_PICTURES set to a folder, pictures of them are written there (`make console-pictures`).
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pyvips
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client

from accounts.models import Account
from console.summary import summary_take
from namespaces.models import Namespace
from tests.console.pages.sample import make_sample, make_trend
from tests.run_extent import campaign_after
from tests.staff.pages import action_url
from tests.vm.browser import Page, browser
from vmbackend.models import Host
from webhooks.models import Subscription
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)
WIDE, NARROW, HEIGHT = 1400, 400, 900
SCREENS = [[(WIDE, "light"), (NARROW, "dark")], [(WIDE, "dark"), (NARROW, "light")]]
SHOWN_SECONDS = 120.0
# What the page reports of itself: errors of scripts, of files that do not load, of the policy, on the console.
RECORD = """
window.faults = [];
const note = (what) => window.faults.push(String(what));
addEventListener("error", (event) => note(event.message || (event.target.src ?? event.target.href)), true);
addEventListener("unhandledrejection", (event) => note(event.reason));
addEventListener("securitypolicyviolation", (event) => note(event.violatedDirective + " " + event.blockedURI));
for (const name of ["error", "warn"]) { console[name] = (...words) => note(words.join(" ")); }
"""
# By how much the page is wider than the screen, also where its colours are changed without loading it.
WIDTH_IN_BOTH_THEMES = """
(() => {
    const page = document.documentElement, widths = [page.scrollWidth];
    page.classList.toggle("dark");
    widths.push(page.scrollWidth);
    page.classList.toggle("dark");
    return Math.max(...widths) - innerWidth;
})()
"""
# What is beyond the right edge, for messages.
TOO_WIDE = """
[...document.querySelectorAll("#main *")].filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
    .slice(0, 6).map((each) => `${each.tagName}.${each.className} ${each.textContent.trim().slice(0, 40)}`)
"""
# Badges that are beyond the edge of what contains them.
OUT_OF_SIGHT = """
[...document.querySelectorAll("#main .mvm-badge")].filter((each) => {
    let edge = innerWidth;
    for (let up = each.parentElement; up; up = up.parentElement)
        if (getComputedStyle(up).overflowX !== "visible") edge = Math.min(edge, up.getBoundingClientRect().right);
    return each.offsetParent && each.getBoundingClientRect().left >= edge;
}).map((each) => each.textContent)
"""
# What follows the name on the page before an action, in the order in which it is shown.
STATE_OF_A_ROW = """
(() => {
    const text = document.querySelector("#rows bdi").nextSibling;
    const shown = [...text.data].map((letter, at) => {
        const range = document.createRange();
        range.setStart(text, at);
        range.setEnd(text, at + 1);
        return [range.getBoundingClientRect().left, letter];
    });
    return shown.sort((one, other) => one[0] - other[0]).map((each) => each[1]).join("").trimEnd();
})()
"""
# Name of a picture to its page, and whether it is taken dark or narrow.
PICTURES = {
    "dashboard": (WIDE, "light"),
    "dashboard-dark": (WIDE, "dark"),
    "dashboard-narrow": (NARROW, "light"),
    "workspaces": (WIDE, "light"),
    "workspace": (WIDE, "light"),
    "workspace-usage": (WIDE, "dark"),
    "operations": (WIDE, "light"),
    "namespace-credits": (WIDE, "light"),
    "host": (WIDE, "light"),
    "webhook": (WIDE, "dark"),
    "ledger": (WIDE, "light"),
}


def paths() -> dict[str, str]:
    row = Workspace.objects.filter(kind="workspace", status="running").order_by("-id")[0]
    workspace = f"/admin/workspaces/workspace/{row.pk}/change/"
    namespace = Namespace.objects.order_by("id")[0]
    hook = Subscription.objects.exclude(failing_since=None)[0]
    return {
        "dashboard": "/admin/",
        "dashboard-dark": "/admin/",
        "dashboard-narrow": "/admin/",
        "workspaces": "/admin/workspaces/workspace/",
        "workspace": workspace,
        "workspace-usage": f"{workspace}?tab=usage-and-credits",
        "operations": "/admin/workspaces/operation/?attention=failed",
        "namespace-credits": f"/admin/namespaces/namespace/{namespace.pk}/change/?tab=credits",
        "host": f"/admin/vmbackend/host/{Host.objects.get(name='host-a').pk}/change/",
        "webhook": f"/admin/webhooks/subscription/{hook.pk}/change/?tab=deliveries",
        "ledger": "/admin/credits/entry/",
    }


def pages_without_pictures() -> dict[str, str]:
    """Forms: that of a user has the longest choices, that of a plan asks for a reason."""
    user = get_user_model().objects.order_by("pk")[0]
    row = Workspace.objects.filter(kind="workspace").order_by("-id")[0]
    return {
        "user": f"/admin/auth/user/{user.pk}/change/",
        "plan": "/admin/accounts/plan/pro/change/",
        "confirmation": action_url("workspaces/workspace", "remove", row.pk),
    }


@pytest.fixture
def page(live_server: Any, staff: Client) -> Iterator[Page]:
    make_sample(12)
    make_trend()
    summary_take()
    cookie = staff.cookies[settings.SESSION_COOKIE_NAME].value
    with browser() as chromium:
        opened = chromium.open("about:blank")
        opened.call("Network.setCookie", name=settings.SESSION_COOKIE_NAME, value=cookie, url=live_server.url)
        opened.call("Page.addScriptToEvaluateOnNewDocument", source=RECORD)
        yield opened


def shown(page: Page, url: str, width: int, theme: str) -> None:
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT, deviceScaleFactor=1, mobile=False)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    page.call("Page.navigate", url=url)
    wait(page, f"location.href === {url!r} && document.readyState === 'complete' && window.Alpine")
    wait(page, f"document.documentElement.classList.contains('dark') === {str(theme == 'dark').lower()}")


def wait(page: Page, condition: str) -> None:
    until = time.monotonic() + SHOWN_SECONDS
    while not page.value(f"!!({condition})"):
        assert time.monotonic() < until, (condition, page.value("document.body.innerText")[:1000])
        time.sleep(0.05)


@pytest.mark.parametrize("screens", campaign_after(1, SCREENS), ids=lambda pair: " and ".join(map(str, pair)))
def test_the_pages_fit_wide_and_narrow_screens_light_and_dark(
    live_server: Any, page: Page, screens: list[tuple[int, str]]
) -> None:
    pictures_write(live_server, page)
    faults: dict[str, Any] = {}
    found = paths()
    for name, path in {**found, **pages_without_pictures()}.items():
        if name in ("dashboard-dark", "dashboard-narrow"):
            continue
        for width, theme in screens:
            shown(page, live_server.url + path, width, theme)
            wide = page.value(WIDTH_IN_BOTH_THEMES)
            reported = page.value("window.faults")
            if wide > 0 or reported:
                faults[f"{name} {width} {theme}"] = (wide, reported, page.value(TOO_WIDE) if wide > 0 else [])
    assert faults == {}
    # Charts are drawn, tabs change without a request.
    shown(page, live_server.url + found["dashboard"], WIDE, "light")
    assert page.value("document.querySelectorAll('canvas[data-drawn]').length") >= 2
    shown(page, live_server.url + found["workspace"], WIDE, "light")
    page.value("document.querySelector('#tab-usage-and-credits').click()")
    wait(page, "document.querySelector('#part-usage-and-credits canvas[data-drawn]').offsetHeight > 50")
    assert page.value("document.querySelector('#part-overview').hidden")
    assert page.value("location.search") == "?tab=usage-and-credits"
    assert page.value("window.faults") == []
    names_leave_states_in_sight(live_server, page, found)
    the_login_fits(live_server, page)


def the_login_fits(live_server: Any, page: Page) -> None:
    page.call("Network.clearBrowserCookies")
    for width in (WIDE, NARROW):
        shown(page, f"{live_server.url}/admin/login/", width, "light")
        assert page.value("document.querySelector('input[type=password]').offsetWidth") > 100
        assert page.value("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.value("window.faults") == []


def names_leave_states_in_sight(live_server: Any, page: Page, found: dict[str, str]) -> None:
    """Whatever users call what they have: of any length, and with characters that turn the direction of text."""
    Workspace.objects.update(name=f"\u202e\u2066\u202e{'W' * 200}")
    Account.objects.update(name="W" * 120)
    for name in ("dashboard", "workspaces", "operations"):
        shown(page, live_server.url + found[name], WIDE, "light")
        assert page.value(OUT_OF_SIGHT) == [], name
    row = Workspace.objects.filter(kind="workspace", status="running")[0]
    shown(page, f"{live_server.url}/admin/workspaces/workspace/_actions/stop/?row={row.pk}", NARROW, "light")
    assert page.value("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.value(STATE_OF_A_ROW) == " (running)"


def pictures_write(live_server: Any, page: Page) -> None:
    folder = os.environ.get("CONSOLE_PICTURES")
    if not folder:
        return
    for name, path in paths().items():
        width, theme = PICTURES[name]
        shown(page, live_server.url + path, width, theme)
        time.sleep(0.5)  # fonts and charts
        height = min(page.value("document.documentElement.scrollHeight"), 1500 if width == WIDE else 1800)
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        time.sleep(0.3)
        taken = page.call("Page.captureScreenshot", format="png")["data"]
        image = pyvips.Image.new_from_buffer(base64.b64decode(taken), "")
        image.pngsave(str(Path(folder) / f"{name}.png"), palette=True, Q=90, effort=10, strip=True)
