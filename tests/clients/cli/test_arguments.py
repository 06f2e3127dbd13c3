"""Arguments and options: those of every command, numbers that are none, and what wrong use says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from microvm.cli.profiles import Profile, ProfileStore
from tests.clients.cli.runner import PROGRAM, Ws
from tests.clients.cli.test_commands import answer, workspace
from tests.clients.scripted_server import Script, command_end, command_output, command_stream

EMPTY = answer(200, {"success": True, "workspaces": []})


@pytest.fixture
def ws(server: Script, tmp_path: Path) -> Ws:
    """With the profiles `one` and, active, `two`, which leads nowhere."""
    made = Ws(tmp_path)
    store = ProfileStore(tmp_path)
    store.save("one", Profile(server.url, "cl_one", "secret-one"))
    store.save("two", Profile("http://127.0.0.1:9", "cl_two", "secret-two"))
    return made


# Options of every command


@pytest.mark.parametrize(
    "words",
    [
        ["--profile", "one", "--json", "list"], ["list", "--profile", "one", "--json"],
        ["--profile", "one", "list", "--json"], ["--json", "--profile=two", "list", "--profile=one"],
    ],
)  # fmt: skip
def test_options_of_every_command_stand_before_or_after_it(server: Script, ws: Ws, words: list[str]) -> None:
    server.steps = [EMPTY]
    assert ws.output(*words) == "[]\n"
    assert server.seen[0][2]["x-client-id"] == "cl_one"


@pytest.mark.parametrize(
    "words",
    [
        ["--json", "pages", "--profile", "one", "list"], ["pages", "--json", "list", "--profile", "one"],
        ["--profile", "two", "--json", "pages", "--profile", "one", "list"],
    ],
)  # fmt: skip
def test_the_nearest_to_the_command_counts(server: Script, ws: Ws, words: list[str]) -> None:
    server.steps = [answer(200, {"success": True, "pages": []})]
    assert ws.output(*words) == "[]\n"
    assert server.seen[0][2]["x-client-id"] == "cl_one"


def test_a_profile_before_the_command_is_the_one_of_a_program_and_of_a_logout(server: Script, ws: Ws) -> None:
    server.steps = [command_stream(command_output("stdout", b"x"), command_end())]
    assert ws.output("--profile", "one", "exec", "box", "ls", "--json") == "x"
    ws.output("--profile", "one", "logout")
    assert [row["name"] for row in ws.json("profiles")] == ["two"]


def test_a_login_may_name_its_profile_by_the_option(server: Script, ws: Ws, tmp_path: Path) -> None:
    server.steps = [answer(200, {})]
    (tmp_path / "c.env").write_text(f"BASE_URL={server.url}\nCLIENT_ID=c\nCLIENT_SECRET=s\n")
    ws.output("--profile", "three", "login", "--file", tmp_path / "c.env")
    assert [row["name"] for row in ws.json("profiles") if row["active"]] == ["three"]


def test_completion_asks_with_the_profile_that_is_named(server: Script, ws: Ws) -> None:
    command = [PROGRAM[0], "-c", "import sys; sys.argv[0] = 'ws'; from microvm.cli.entry import main; main()"]
    for typed in ("ws --profile one show b", "ws show --profile one b"):
        server.steps = [answer(200, {"success": True, "workspaces": [workspace(slug="box")]})]
        place = str(len(typed.split()) - 1)
        words = {"_WS_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": place}
        found = subprocess.run(command, env={**ws.environment, **words}, capture_output=True, text=True, check=False)
        assert found.stdout.split() == ["box"]


# Numbers

NO_NUMBERS = ["nan", "inf", "-inf", "-1", "0", "1e400", "1e12", "", "one", "0x10", "1,5"]
NO_SIZES = ["nan", "inf", "-1G", "0", "0.2M", "9" * 400, "99999999T", "1e3", "\u0663G", "", "1G\n2G", "G"]


@pytest.mark.parametrize("text", NO_NUMBERS)
@pytest.mark.parametrize(
    "words",
    [["create", "--cpu"], ["create", "--wait", "--timeout"], ["resize", "box", "--cpu"]],
)
def test_what_is_no_amount_is_one_sentence_and_nothing_is_sent(
    server: Script, ws: Ws, words: list[str], text: str
) -> None:
    said = ws.fails(2, "--profile", "one", *words, text)
    assert said.startswith(f"Error: Invalid value for '{words[-1]}'")
    assert len(said.splitlines()) == 2
    assert server.seen == []


@pytest.mark.parametrize("text", NO_SIZES)
@pytest.mark.parametrize("words", [["create", "--ram"], ["create", "--disk"], ["resize", "box", "--ram"]])
def test_what_is_no_size_is_one_sentence_and_nothing_is_sent(
    server: Script, ws: Ws, words: list[str], text: str
) -> None:
    assert "is no size" in ws.fails(2, "--profile", "one", *words, text)
    assert server.seen == []


@pytest.mark.parametrize("text", [*NO_NUMBERS, "601", "0.5"])
def test_a_program_is_not_started_with_a_timeout_that_the_service_has_not(server: Script, ws: Ws, text: str) -> None:
    assert "Invalid value for '--timeout'" in ws.fails(125, "--profile", "one", "exec", "--timeout", text, "box", "ls")
    assert server.seen == []


# Wrong use


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "--jsn"], "--json"), (["unknown"], "unknown"), (["port", "publish", "99999"], "65535"),
        (["port", "publish", "x"], "PORT"), (["cp", "one"], "TARGET"), (["pages", "unknown"], "unknown"),
        (["--jsn", "list"], "--json"), (["list", "--profile"], "--profile"), (["list", "\x1b]0;x\x07"], "\\x1b"),
    ],
)  # fmt: skip
def test_wrong_use_is_a_sentence_with_a_hint_also_as_json(ws: Ws, words: list[str], said: str) -> None:
    text = ws.fails(2, *words)
    assert said in text
    assert "\x1b" not in text
    assert "--help` shows" in text
    found = ws.run("--json", *words)
    assert (found.exit_code, found.stdout) == (2, "")
    error = json.loads(found.stderr)["error"]
    assert (error["code"], error["exit_code"]) == ("usage", 2)


@pytest.mark.parametrize("words", [["exec", "box"], ["exec", "--unknown", "box", "ls"], ["terminal", "--attach", "x"]])
def test_wrong_use_of_what_passes_codes_on_is_no_code_of_a_program(ws: Ws, words: list[str]) -> None:
    assert "--help` shows" in ws.fails(125, *words)
    assert json.loads(ws.fails(125, "--json", *words))["error"]["exit_code"] == 2


def test_nothing_at_all_is_the_help_and_wrong_use(ws: Ws) -> None:
    for words in ([], ["pages"], ["pages", "domain"]):
        assert "Commands:" in ws.fails(2, *words)
    assert "--json" in ws.output("--help")
    assert json.loads(ws.fails(2, "--json"))["error"]["message"] == "Missing command."


def test_the_shown_use_is_in_plain_words(ws: Ws) -> None:
    for words in (["create"], ["exec"], ["ssh"], ["rm"], ["pages", "domain", "add"]):
        text = ws.output(*words, "--help")
        assert "[[" not in text
        assert "...]" not in text.partition("Options:")[0].replace("]...", "")
        assert "<float>" not in text
