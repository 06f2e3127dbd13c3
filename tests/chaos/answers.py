"""Checks of every answer, whatever happens to the platform: pure functions."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.syntax_trees import syntax_tree

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "platform/edge/Caddyfile.template"
# vmbackend's errors have codes too, and never reach a caller.
LEFT_OUT = {".venv", "var", "tests", "benchmarks", "clients", "migrations", "vmbackend"}
# A well-formed request with a valid credential gets none of these.
REFUSALS_OF_VALID_REQUESTS = frozenset({400, 401, 402, 403, 405, 413, 415})
ENVELOPE = frozenset({"success", "error", "code", "message", "request_id"})


@dataclass(frozen=True)
class Sent:
    """A request. `exists`: the workspace that it names was acknowledged and never deleted."""

    method: str
    path: str
    request_id: str
    word: str
    exists: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path} ({self.request_id})"


@dataclass(frozen=True)
class Answer:
    """A status of 0: none came."""

    status: int
    content: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> Any:
        try:
            return json.loads(self.content)
        except ValueError:
            return None

    @property
    def is_done(self) -> bool:
        return 200 <= self.status < 300

    @property
    def goes_on(self) -> bool:
        """It was accepted, and is neither done nor failed."""
        return self.status == 202

    @property
    def is_refused(self) -> bool:
        """Nothing was done."""
        return 400 <= self.status < 500

    @property
    def outcome(self) -> str:
        if not self.status:
            return "unanswered"
        return "done" if self.is_done else "refused" if self.is_refused else "unavailable"

    @property
    def code(self) -> str:
        body = self.body
        return str(body.get("code", "")) if isinstance(body, dict) else ""


def answer_problems(sent: Sent, answer: Answer, foreign: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(invariant, what is wrong), for one answer."""
    yield from _foreign_words(sent, answer, foreign)
    if not answer.status:
        return
    if answer.headers.get("x-request-id", "") != sent.request_id:
        seen = answer.headers.get("x-request-id", "")
        yield "an answer belongs to its request", f"{sent} was answered with the request id {seen!r}"
    if answer.status >= 300:
        yield from _error_problems(sent, answer)
    elif answer.headers.get("content-type", "").startswith("application/json"):
        body = answer.body
        if not isinstance(body, dict) or body.get("success") is not True:
            yield "a success is whole", f"{sent}: {answer.status} {answer.content[:200]!r}"


def _foreign_words(sent: Sent, answer: Answer, foreign: Iterable[str]) -> Iterator[tuple[str, str]]:
    text = answer.content + repr(sorted(answer.headers.items())).encode()
    for word in foreign:
        at = text.find(word.encode())
        if at >= 0:
            yield "no foreign word in an answer", f"{sent}: {text[max(0, at - 80) : at + 80]!r}"


def _error_problems(sent: Sent, answer: Answer) -> Iterator[tuple[str, str]]:
    body = answer.body
    shown = f"{sent}: {answer.status} {answer.content[:300]!r}"
    if answer.status == 500 and answer.code != "CREATE_FAILED":  # the one that the specification has
        yield "no internal error", shown
        return
    if not isinstance(body, dict) or not set(body) >= ENVELOPE or body["success"] is not False or not body["message"]:
        yield "every error is documented", shown
        return
    if answer.status not in documented_errors().get(body["code"], ()):
        yield "every error is documented", shown
    if answer.status in REFUSALS_OF_VALID_REQUESTS:
        yield "no valid request is refused", shown
    if sent.exists and body["code"] == "not_found":
        yield "no acknowledged workspace is missing", shown


@cache
def documented_errors() -> dict[str, frozenset[int]]:
    """Code -> statuses: the API's error classes, which are what the OpenAPI document lists, and the edge's own."""
    classes: dict[str, tuple[list[str], str, int]] = {}
    for path in ROOT.rglob("*.py"):
        if not LEFT_OUT & set(path.relative_to(ROOT).parts):
            classes |= {found.name: _attributes(found) for found in _classes(path)}
    errors: dict[str, set[int]] = {}
    for name, (_, code, _) in classes.items():
        if code and (status := _status_of(name, classes)):
            errors.setdefault(code, set()).add(status)
    for code, status in re.findall(r'import error (\w+) "[^"]*" (\d{3})', TEMPLATE.read_text()):
        errors.setdefault(code, set()).add(int(status))
    return {code: frozenset(statuses) for code, statuses in errors.items()}


def _classes(path: Path) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(syntax_tree(path)) if isinstance(node, ast.ClassDef))


def _attributes(node: ast.ClassDef) -> tuple[list[str], str, int]:
    """Base classes, and the literal `code` and `status` of a class."""
    values: dict[str, Any] = {}
    for item in node.body:
        if isinstance(item, ast.Assign | ast.AnnAssign) and isinstance(item.value, ast.Constant):
            target = item.targets[0] if isinstance(item, ast.Assign) else item.target
            values[getattr(target, "id", "")] = item.value.value
    bases = [base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases]
    code, status = values.get("code"), values.get("status")
    return bases, code if isinstance(code, str) else "", status if isinstance(status, int) else 0


def _status_of(name: str, classes: dict[str, tuple[list[str], str, int]]) -> int:
    """The class's own status or the first that it inherits; 0 for what is no error of the API."""
    if name not in classes:
        return 0
    bases, _, status = classes[name]
    return status or next((found for base in bases if (found := _status_of(base, classes))), 0)
