"""Cases of one operation: made by schemathesis of the document, sent, and their answers compared with it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy, integers, just
from requests import PreparedRequest, Request
from schemathesis.generation import GenerationMode
from schemathesis.generation.feedback import NO_FEEDBACK

from config.api_examples_reader import SHOWN_IDS
from tests.api_cases.example_requests import described, send_before
from tests.api_cases.near_examples import is_replaceable, replace_some
from tests.api_cases.stage import Stage, Stages
from tests.api_cases.wsgi import WsgiAnswer, answer_of
from tests.described import fault_of
from tests.openapi import document

# Of these a server outside of the platform is asked, and none answers.
OUTSIDE = {("post", f"/s/{{sandbox_id}}/git/{name}", 502) for name in ("clone", "pull", "push")}
# How long creations are waited for, in seconds.
WAIT = 1
# Of so many cases one has no credentials.
WITHOUT_CREDENTIALS = 32
# To make a case takes as long as to send it, so one is put into the example in so many ways.
VARIANTS = 3
# Different faults of a kind that are kept.
FAULTS = 5
# What the examples of the document show, and what stands for it in a request.
IDS = {
    name: shown
    for name, shown in SHOWN_IDS.items()
    if name not in ("namespace", "port", "name", "source", "workload_id")
}

# A part of a file is bytes, as a whole one is.
schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")


@dataclass(frozen=True)
class Kind:
    """Cases of the operation `METHOD path`: valid data or not. `near`: of the operation's example, with some of its
    fields replaced. `elsewhere`: with paths of which nearly none leads to anything, instead of the stage's own.
    """

    operation: str
    mode: GenerationMode = GenerationMode.POSITIVE
    near: bool = False
    elsewhere: bool = False

    def __str__(self) -> str:
        if self.elsewhere:
            return "elsewhere"
        return {"positive": "valid", "negative": "invalid"}[self.mode.value] + ", near the example" * self.near


@dataclass
class Sent:
    """Answers by status, and what is wrong with some: faults with their requests."""

    counts: Counter[int] = field(default_factory=Counter)
    faults: dict[str, str] = field(default_factory=dict)


@cache
def operations() -> dict[str, Any]:
    """By `METHOD path`. Without their credentials, which the stage has: they would be made for each case, and
    broken ones would be replaced.
    """
    plain = json.loads(json.dumps(document()))
    plain["components"].pop("securitySchemes", None), plain.pop("security", None)
    for item in plain["paths"].values():
        for operation in item.values():
            operation.pop("security", None)
    found = (result.ok() for result in schemathesis.openapi.from_dict(plain).get_all_operations())
    return {f"{each.method.upper()} {each.path}": each for each in found}


@cache
def kinds() -> list[Kind]:
    """Valid data; invalid where an operation has anything that can be; other paths where its path has placeholders."""
    found = []
    for name in sorted(operations()):
        modes = [GenerationMode.POSITIVE]
        operation, parameters = described(name), described(name).get("parameters", ())
        if "requestBody" in operation or any(each["in"] in ("query", "header") for each in parameters):
            modes.append(GenerationMode.NEGATIVE)
        found += [Kind(name, mode) for mode in modes]
        if is_replaceable(name):
            found += [Kind(name, mode, near=True) for mode in modes]
        if "{" in name:
            found.append(Kind(name, elsewhere=True))
    return found


def _copy_of(case: Any) -> Any:
    """Of `copy.copy` the class takes no attribute before its metadata, which is the last."""
    parts = {
        name: getattr(case, name) for name in ("path_parameters", "headers", "cookies", "query", "body", "media_type")
    }
    return type(case)(case.operation, case.method, case.path, **parts)


class Sender:
    """Sends the cases of a kind one after the other, `most` at most."""

    def __init__(self, kind: Kind, stages: Stages, most: int) -> None:
        self.kind, self.sent, self.most = kind, Sent(), most
        self.method, self.path = kind.operation.lower().split(" ")[0], kind.operation.split(" ")[1]
        self.operation = described(kind.operation)
        self._stages = stages
        self._prepared: Stage | None = None
        self._known: set[tuple[Any, ...]] = set()

    def send(self, case: Any, number: int) -> None:
        """Rejects a case of which everything was sent before. `number` chooses what is replaced of the example."""
        sent = [self._send(each) for each in self._variants(case, Random(number))]
        if not any(sent):
            reject()

    def _variants(self, case: Any, random: Random) -> Iterator[Any]:
        if not self.kind.near:
            yield case
            return
        for _ in range(min(VARIANTS, self.most - self.sent.counts.total())):
            variant = _copy_of(case)
            replace_some(self.kind.operation, variant, random)
            yield variant

    def _send(self, case: Any) -> bool:
        """False where it was sent before."""
        stage = self._stages.current()
        if stage is not self._prepared:
            send_before(self.kind.operation, stage)
            self._prepared = stage
        request = self._request(case, stage)
        what = (request.url, request.body, *request.headers.items())
        if what in self._known:
            return False
        self._known.add(what)
        try:
            answer = answer_of(request)
        except Exception as exc:
            self.sent.counts[500] += 1
            self._keep(f"{type(exc).__name__} {exc}", request)
            return True
        self.sent.counts[answer.status_code] += 1
        self._stages.note(self.method, answer.status_code)
        if answer.status_code < 300:
            stage.renew(self.method, self.path)
        fault = self._fault(answer)
        if fault is not None:
            self._keep(fault, request)
        return True

    def _request(self, case: Any, stage: Stage) -> PreparedRequest:
        self._adapt(case, stage)
        arguments = _arguments(case)
        if self.sent.counts.total() % WITHOUT_CREDENTIALS != WITHOUT_CREDENTIALS - 1:
            security = stage.headers(self.path, self.operation.get("security", []))
            arguments["headers"] = {**arguments.get("headers", {}), **security}
        return _with_ids(Request(**arguments).prepare(), stage)

    def _adapt(self, case: Any, stage: Stage) -> None:
        """Paths lead to things that exist. No command is run, as it would be run here."""
        if not self.kind.elsewhere:
            case.path_parameters |= {name: stage.values(self.path)[name] for name in case.path_parameters}
        if isinstance(case.body, dict):
            if self.path.endswith("/exec") and "cmd" in case.body and isinstance(case.body["cmd"], str | list):
                case.body["cmd"] = ["true"]
            if self.path in ("/workspace", "/sandbox") and case.body.get("wait_ready", True) is True:
                case.body["ready_timeout_seconds"] = WAIT

    def _fault(self, answer: WsgiAnswer) -> str | None:
        if answer.status_code >= 500 and (self.method, self.path, answer.status_code) not in OUTSIDE:
            return f"{answer.status_code}: {answer.content[:500]!r}"
        return fault_of(self.operation, answer)

    def _keep(self, fault: str, request: PreparedRequest) -> None:
        alike = re.sub(r"[0-9a-z_-]{8,}|\d+", "", fault)[:60]
        if len(self.sent.faults) < FAULTS or alike in self.sent.faults:
            self.sent.faults.setdefault(alike, f"{fault}\n{request.method} {request.url} {request.body!r:.2000}")


def _arguments(case: Any) -> dict[str, Any]:
    """For `requests`, which the library sends by itself with some more."""
    found = case.as_transport_kwargs(base_url="http://testserver")
    known = ("method", "url", "headers", "params", "data", "json", "cookies", "files")
    return {name: found[name] for name in known if found.get(name) is not None}


def _with_ids(request: PreparedRequest, stage: Stage) -> PreparedRequest:
    """Examples name what is there."""
    for name, shown in IDS.items():
        if request.url and shown in request.url:
            request.url = request.url.replace(shown, stage.ids[name])
        if isinstance(request.body, bytes) and shown.encode() in request.body:
            request.body = request.body.replace(shown.encode(), stage.ids[name].encode())
    return request


def send_cases(kind: Kind, stages: Stages, count: int, number: int) -> Sent:
    """Send `count` cases, those of the seed `number`; fewer where there are no more different ones."""
    sender = Sender(kind, stages, count)

    @seed(number)
    @settings(
        max_examples=-(-count // VARIANTS) if kind.near else count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(case=_strategy(kind), number=integers(0, 2**32) if kind.near else just(0))
    def sent(case: Any, number: int) -> None:
        sender.send(case, number)

    with suppress(Unsatisfiable):  # nothing that can be sent is invalid
        sent()
    return sender.sent


@cache
def _strategy(kind: Kind) -> SearchStrategy[Any]:
    # Of the stage's own path only the names are needed, which is faster.
    names = {} if kind.elsewhere else {name: name for name in re.findall(r"{(\w+)}", kind.operation)}
    made = operations()[kind.operation]
    found: SearchStrategy[Any] = made.as_strategy(kind.mode, feedback=NO_FEEDBACK, path_parameters=names or None)
    return found
