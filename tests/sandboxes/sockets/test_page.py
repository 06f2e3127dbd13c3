"""The terminal page in a browser, before the real streams server and the guest's own program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model

from sandboxes import services
from tests.sandboxes.rows import make_sandbox
from tests.sandboxes.sockets.conftest import Box, Streams
from tests.sandboxes.sockets.page import SCREEN, Relay, TerminalPage
from tests.vm.browser import Browser, browser

pytestmark = pytest.mark.django_db(transaction=True)
Opened = Callable[..., TerminalPage]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as made:
        yield made


@pytest.fixture
def relay(streams: Streams) -> Iterator[Relay]:
    made = Relay(streams.socket)
    yield made
    made.close()


@pytest.fixture
def opened(chromium: Browser, box: Box, relay: Relay) -> Iterator[Opened]:
    pages: list[TerminalPage] = []

    def open_page(token: str | None = None, *, id: str = "") -> TerminalPage:
        fragment = f"#token={box.token if token is None else token}" if token != "" else ""
        url = f"http://localhost:{relay.port}/s/{id or box.sandbox.pk}/terminal{fragment}"
        pages.append(TerminalPage(chromium, url))
        return pages[-1]

    yield open_page
    for page in pages:
        assert page.faults() == []
        page.page.call("Page.close")


@pytest.fixture
def page(opened: Opened) -> TerminalPage:
    made = opened()
    made.ready()
    return made


def test_what_is_typed_runs_and_is_shown(page: TerminalPage) -> None:
    page.type("echo to''gether 1\n")
    page.shows("together 1")
    # 24-bit colours are style attributes.
    page.type(r"printf '\033[38;2;1;2;3mcoloured\033[0m %s\n' '漢字'" + "\n")
    page.shows("漢字")
    page.wait("document.querySelector('.xterm-rows span[style*=\"color\"]')")


def test_the_token_is_nowhere_but_in_memory(page: TerminalPage, box: Box, relay: Relay) -> None:
    path = f"/s/{box.sandbox.pk}/terminal"
    assert page.value("location.href") == f"http://localhost:{relay.port}{path}"
    history = page.page.call("Page.getNavigationHistory")["entries"]
    assert not [entry for entry in history if box.token in entry["url"]]
    stored = "JSON.stringify([localStorage, sessionStorage, document.cookie, document.referrer, history.state])"
    assert box.token not in page.value(stored)
    assert box.token not in page.value("document.documentElement.outerHTML")
    assert box.token not in page.value("JSON.stringify(performance.getEntriesByType('resource').map(e => e.name))")
    # Only the socket's handshake has it, and no request has an address with it as its referrer.
    with_token = [head for head in relay.heads if box.token.encode() in head]
    assert with_token
    assert all(head.startswith(f"GET /s/{box.sandbox.pk}/ws?token=".encode()) for head in with_token)
    assert not [head for head in relay.heads if b"\r\nreferer:" in head.lower() or b"\r\ncookie:" in head.lower()]
    assert box.token not in box.streams.log.read_text()


def test_a_reload_asks_for_the_token(page: TerminalPage, box: Box) -> None:
    page.type("echo be''fore; cat\n")
    page.shows("before")
    page.page.call("Page.reload")
    page.wait("document.querySelector('#ask:not([hidden])')")
    page.value(
        f"document.querySelector('#token').value = {box.token!r}; document.querySelector('#ask').requestSubmit()"
    )
    page.ready()
    # The terminal of before is among the others, and is restored.
    page.wait("document.querySelector('#others:not([hidden]) option:nth-child(2)')")
    page.value(
        "(others => { others.selectedIndex = 1; others.dispatchEvent(new Event('change')) })"
        "(document.querySelector('#others'))"
    )
    page.shows("before")
    page.wait("document.querySelectorAll('.tab').length === 2")
    page.type("from cat\n")
    page.wait("true")
    page.shows("from cat\nfrom cat")


def test_a_link_that_is_opened_in_the_same_page_is_used(opened: Opened, box: Box) -> None:
    page = opened("")
    page.wait("document.querySelector('#ask:not([hidden])')")
    page.value(f"location.hash = 'token={box.token}'")
    page.ready()
    assert "#" not in page.value("location.href")


def test_a_paste_is_bracketed_where_the_program_asks_for_it(page: TerminalPage) -> None:
    page.type(r"printf '\033[?2004h'; stty -echo; cat -v" + "\n")
    page.wait("true")
    paste = """(data => {
        data.setData("text/plain", "one\\ntwo");
        document.querySelector(".screen:not([hidden]) textarea").dispatchEvent(
            new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true}));
    })(new DataTransfer())"""
    until = time.monotonic() + 60
    while "^[[200~one" not in page.screen() and time.monotonic() < until:
        page.value(paste)
        page.press("Enter", 13, "\r")
        time.sleep(0.5)
    assert "^[[200~one" in page.screen()
    assert "two^[[201~" in page.screen()


def test_the_terminal_has_the_size_of_the_window(page: TerminalPage) -> None:
    def resized(width: int, height: int) -> None:
        page.page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    resized(1200, 800)
    page.type("trap 'echo si''ze $(stty size), ' WINCH; echo rea''dy\n")
    page.shows("ready")
    resized(700, 400)
    # That of the first size may come only now.
    page.wait(f"/size ([6-9]|[12][0-9]) ([4-9][0-9]|10[0-9]),/.test({SCREEN})")


def test_tabs_are_terminals_of_their_own(page: TerminalPage) -> None:
    page.type("echo fi''rst\n")
    page.shows("first")
    page.value("document.querySelector('#new').click()")
    page.wait("document.querySelectorAll('.tab').length === 2")
    page.ready()
    page.type("echo sec''ond\n")
    page.shows("second")
    assert "first" not in page.screen()
    page.value("document.querySelector('.tab button').click()")
    page.shows("first")
    assert "second" not in page.screen()
    page.value("document.querySelector('.tab.shown .end').click()")
    page.wait("document.querySelectorAll('.tab').length === 1")
    page.shows("second")


def test_a_terminal_that_is_refused_is_explained_until_one_is_made(opened: Opened, box: Box) -> None:
    client = box.connect()
    for _ in range(limit := settings.ENV.sandbox_terminals_max):
        made = client.ask("terminal_created", action="terminal_create")["terminalId"]
    page = opened()
    page.wait(f"document.querySelector('#others:not([hidden])')?.textContent.startsWith('{limit} more')")
    page.status(f"at most {limit} terminals")
    client.ask("terminal_closed", action="terminal_close", terminalId=made)
    page.value("document.querySelector('#new').click()")
    page.ready()
    page.wait("document.querySelector('#status').textContent === 'Connected'")


def test_after_a_cut_each_terminal_goes_on_at_its_byte(page: TerminalPage, relay: Relay) -> None:
    page.type("for i in 5 6 7; do echo wa''its for $i; read x; seq -s, $x; done\n")
    for number in (5, 6, 7):
        page.shows(f"waits for {number}")
        page.type(f"{number}\n")
        page.shows(",".join(str(each) for each in range(1, number + 1)))
        relay.cut(refuse=True)
        page.status("lost")
        relay.accept()
        page.ready()
        page.wait("document.querySelector('#status')?.textContent === 'Connected'")
    assert page.screen().count("1,2,3,4,5\n") == 1
    page.type("exit 3\n")
    page.shows("[ended with code 3]")


def test_output_of_the_time_between_is_shown_or_its_loss_is(page: TerminalPage, box: Box, relay: Relay) -> None:
    page.type("echo be''gun 1; sleep 0.5; seq 20000; echo al''l\n")
    page.shows("begun 1")
    relay.cut(refuse=True)
    page.status("lost")
    relay.accept()
    page.shows("20000\nall")
    # More than the buffer holds, read by another client only.
    page.type("echo be''gun 2; read go; seq 200000; echo much''more\n")
    page.shows("begun 2")
    relay.cut(refuse=True)
    page.status("lost")
    other = box.connect()
    id = other.ask("terminal_list", action="terminal_list")["terminals"][0]["terminalId"]
    other.ask("terminal_attached", action="terminal_attach", id=id, offset=0)
    other.send(a="i", id=id, d="\n")
    other.read_until(id, b"muchmore\r\n")
    relay.accept()
    page.shows("200000\nmuchmore")
    page.status("bytes of terminal")


def test_control_c_ends_a_flood(page: TerminalPage) -> None:
    page.type("yes flood\n")
    page.shows("flood\nflood\nflood")
    time.sleep(2)  # all buffers on the way are full
    page.press("c", 67, control=True)
    page.shows("^C")
    page.type("echo af''ter\n")
    page.shows("after")


def test_a_wrong_token_and_one_that_ends_are_explained(opened: Opened, box: Box) -> None:
    wrong = opened("sbt_unknown")
    wrong.status("missing or unknown")
    wrong.wait("document.querySelector('#ask:not([hidden])')")
    page = opened()
    page.ready()
    services.token_regenerate(workspace=box.sandbox.workspace, actor="owner")
    page.status("the token was replaced")
    page.wait("document.querySelector('#ask:not([hidden])')")


def test_staff_use_a_token_of_their_own_until_it_ends(opened: Opened, box: Box) -> None:
    user = get_user_model().objects.create_superuser("carol")
    token = services.staff_token_create(workspace=box.sandbox.workspace, user=user, actor="staff carol")
    page = opened(token)
    page.ready()
    page.type("echo st''aff\n")
    page.shows("staff")
    user.is_active = False
    user.save()
    page.status("the access to this terminal has expired")
    page.wait("document.querySelector('#ask:not([hidden])')")
    assert token not in box.streams.log.read_text()


def test_staff_learn_why_they_are_refused(opened: Opened, box: Box) -> None:
    user = get_user_model().objects.create_superuser("carol")
    stopped, _ = make_sandbox(box.sandbox.workspace.account, host=None, status="stopped")
    page = opened(
        services.staff_token_create(workspace=stopped.workspace, user=user, actor="staff carol"), id=stopped.pk
    )
    page.status("it must be running")
    page.wait("document.querySelector('#connect:not([hidden])')")
    unknown = opened("sbs_unknown")
    unknown.status("missing or unknown")
    unknown.wait("document.querySelector('#ask:not([hidden])')")


def test_a_sandbox_that_does_not_run_is_explained(opened: Opened, box: Box) -> None:
    stopped, token = make_sandbox(box.sandbox.workspace.account, host=None, status="stopped")
    page = opened(token, id=stopped.pk)
    page.wait("document.querySelector('#connect:not([hidden])')")
