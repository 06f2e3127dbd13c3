"""Each operation of the OpenAPI document has an example, which is sent here and answered as the document shows it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from config.api_examples_reader import FOLDER, Example, all_examples
from tests.api_cases.example_requests import described, send_before, send_example
from tests.api_cases.stage import Stages
from tests.api_cases.wsgi import WsgiAnswer
from tests.described import fault_of
from tests.openapi import document
from tests.vmbackend.hold_guests import Guests

JSON = "application/json"
# `make examples`: what is answered is written to the files, and compared afterwards.
WRITE = bool(os.environ.get("WRITE_EXAMPLES"))
SECRETS = {"secret", "token", "client_secret", "key", "data_key", "uploadUrl", "upload_url"}
# Of links and joins, and passwords in URLs.
TEXT_SECRETS = [
    (re.compile(r"\bplk_[\w-]{43}"), "plk_example"),
    (re.compile(r"\bjoin_[\w-]{43}"), "join_example"),
    (re.compile(r"(?<=//)(host_\w{16}:)[\w-]+@"), r"\1example@"),
]
FILE_LINK = re.compile(r"/linked/[\w.:-]+$")
FAKE_DISK = re.compile(r"/\S+/machines/directories/\w+/disk/")
ROW_ID = re.compile(r"[a-z]+_[2-7a-z]{16}")
FILES = sorted(path.name for path in FOLDER.glob("*.json"))


def test_every_operation_has_an_example() -> None:
    operations = {f"{method.upper()} {path}" for path, item in document()["paths"].items() for method in item}
    assert set(all_examples()) == operations, f"each operation has one in {FOLDER}"
    statuses = {name: example.get("status") for name, example in all_examples().items()}
    unanswered = [name for name, status in statuses.items() if status is None]
    assert WRITE or unanswered == [], "run `make examples`"
    assert [name for name, status in statuses.items() if status and not 200 <= status < 300] == []


@pytest.fixture(scope="module")
def remotes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the repository `team/site.git`, which has a commit."""
    folder = tmp_path_factory.mktemp("remotes")
    who = ["-c", "user.name=Bob", "-c", "user.email=bob@example.org"]
    for words in (
        ["init", "-q", "--initial-branch=main", "work"],
        ["-C", "work", *who, "commit", "-q", "--allow-empty", "-m", "First"],
        ["clone", "-q", "--bare", "work", "team/site.git"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("file", FILES)
def test_an_example_is_sent_and_answered_as_the_document_shows_it(
    file: str, host: None, remotes: Path, guests: Guests
) -> None:
    examples: dict[str, Example] = json.loads((FOLDER / file).read_text())
    # Machines find the repositories of the examples' git server in a folder.
    git = {"COUNT": "1", "KEY_0": f"url.file://{remotes}/.insteadOf", "VALUE_0": "https://git.example.org/"}
    faults, stages = {}, Stages({f"GIT_CONFIG_{name}": value for name, value in git.items()})
    for name, example in examples.items():
        answer = _sent(name, example, stages)
        if WRITE:
            example.pop("answer", None), example.pop("answer_text", None)
            example |= _recorded(answer)
        if fault := fault_of(described(name), answer) or _differs(example, answer):
            faults[name] = fault
    stages.end()
    if WRITE:
        (FOLDER / file).write_text(json.dumps(examples, indent=2, ensure_ascii=False) + "\n")
    assert faults == {}


def _sent(name: str, example: Example, stages: Stages) -> WsgiAnswer:
    if example.get("fresh"):
        stages.end()
    stage = stages.current()
    for method, answer in send_before(name, stage):
        assert answer.status_code < 300 or answer.status_code == 409, (name, answer.content)
        stages.note(method, answer.status_code)
    answer = send_example(name, example, stage)
    stages.note(name.partition(" ")[0].lower(), answer.status_code)
    return answer


def _recorded(answer: WsgiAnswer) -> Example:
    kind = answer.get("Content-Type").partition(";")[0]
    found: Example = {"status": answer.status_code, "content_type": kind}
    if kind == JSON:
        return {**found, "answer": _masked(json.loads(answer.content))}
    with suppress(UnicodeDecodeError):  # an archive is not shown
        return {**found, "answer_text": answer.content.decode()} if answer.content else found
    return found


def _masked(value: Any, name: str = "") -> Any:
    """Without secrets of the test, and with paths as a real guest has them."""
    if isinstance(value, dict):
        return {key: _masked(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_masked(each) for each in value[:3]]
    if isinstance(value, str):
        value = FILE_LINK.sub("/linked/example", FAKE_DISK.sub("/", value))
        for pattern, shown in TEXT_SECRETS:
            value = pattern.sub(shown, value)
    if name in SECRETS and isinstance(value, str):
        return re.sub(r"([a-z]+_)?[A-Za-z0-9_-]{20,}$", r"\1example", value)
    return value


def _differs(example: Example, answer: WsgiAnswer) -> str:
    """A sentence, or nothing, where status, type and shape are those of the example."""
    if answer.status_code != example.get("status"):
        return f"{answer.status_code}: {answer.content[:300]!r}"
    if answer.get("Content-Type").partition(";")[0] != example["content_type"]:
        return f"Content-Type {answer.get('Content-Type')}"
    return _difference(example["answer"], json.loads(answer.content)) if "answer" in example else ""


def _difference(shown: Any, found: Any, place: str = "answer") -> str:
    """Where the shapes differ: names of fields, and types of values; null is any of them."""
    if isinstance(shown, dict) and isinstance(found, dict):
        if _is_by_id(shown) and _is_by_id(found):
            return _difference([*shown.values()], [*found.values()], place)
        if set(shown) != set(found):
            return f"{place}: {sorted(set(shown) ^ set(found))}"
        return next(filter(None, (_difference(shown[name], found[name], f"{place}.{name}") for name in shown)), "")
    if isinstance(shown, list) and isinstance(found, list):
        return _difference(shown[0], found[0], f"{place}[0]") if shown and found else ""
    if shown is None or found is None:
        return ""
    return "" if _kind(shown) is _kind(found) else f"{place}: {found!r:.60} for {shown!r:.60}"


def _is_by_id(value: dict[str, Any]) -> bool:
    """Whether its names are ids of rows, which are others each time."""
    return bool(value) and all(ROW_ID.fullmatch(name) for name in value)


def _kind(value: Any) -> type:
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def test_the_examples_are_part_of_the_wheel() -> None:
    assert Path(FOLDER).is_relative_to(Path(__file__).parents[2] / "platform" / "config")
