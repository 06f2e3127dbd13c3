"""Cases of one operation: made by schemathesis of the document, sent, and their answers compared with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from requests import Request
from schemathesis.generation import GenerationMode

from tests.api_cases.stage import Stage, Stages
from tests.api_cases.wsgi import WsgiAnswer, answer_of
from tests.described import fault_of
from tests.openapi import document

# Of these a server outside of the platform is asked, and none answers.
OUTSIDE = {("post", f"/s/{{sandbox_id}}/git/{name}", 502) for name in ("clone", "pull", "push")}
DELETIONS = 5
# How long creations are waited for, in seconds.
WAIT = 1


class Undescribed(AssertionError):
    """An answer that the document has not; the message has the request."""


# A part of a file is bytes, as a whole one is.
schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")


@cache
def operations() -> dict[str, Any]:
    """By `METHOD path`."""
    schema = schemathesis.openapi.from_dict(document())
    found = (result.ok() for result in schema.get_all_operations())
    return {f"{each.method.upper()} {each.path}": each for each in found}


class Sender:
    """Sends the cases of one operation after the other. `counts`: by status, of the operation `name`."""

    def __init__(self, name: str, stages: Stages) -> None:
        self.method, self.path = name.lower().split(" ")[0], name.split(" ")[1]
        self.operation = document()["paths"][self.path][self.method]
        self.counts: Counter[int] = Counter()
        self._stages = stages

    def send(self, case: Any) -> None:
        """Raises Undescribed."""
        stage = self._stages.current()
        self._adapt(case, stage)
        request = Request(**_arguments(case)).prepare()
        request.headers.update(stage.headers(self.path, self.operation.get("security", [])))
        answer = answer_of(request)
        self.counts[answer.status_code] += 1
        self._stages.note(self.method, answer.status_code)
        fault = self._fault(answer)
        if fault is not None:
            raise Undescribed(f"{fault}\n{request.method} {request.url} {request.body!r:.2000}")

    def _adapt(self, case: Any, stage: Stage) -> None:
        """Paths lead to things that exist, but for each eighth case. No command is run, as it would be run here."""
        if self.counts.total() % 8 != 7:
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


def _arguments(case: Any) -> dict[str, Any]:
    """For `requests`, which the library sends by itself with some more."""
    found = case.as_transport_kwargs(base_url="http://testserver")
    known = ("method", "url", "headers", "params", "data", "json", "cookies", "files")
    return {name: found[name] for name in known if found.get(name) is not None}


def send_cases(name: str, stages: Stages, count: int, number: int, *, mode: GenerationMode) -> Counter[int]:
    """Send `count` cases of an operation, those of the seed `number`. Returns the answers by status.

    Raises Undescribed with the smallest request that hypothesis found.
    """
    sender = Sender(name, stages)
    strategy = operations()[name].as_strategy(generation_mode=mode)

    # After each deletion there is a new stage, which takes as long as fifty cases.
    most = min(count, DELETIONS) if name.startswith("DELETE ") else count

    @seed(number)
    @settings(
        max_examples=most,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(case=strategy)
    def sent(case: Any) -> None:
        sender.send(case)

    sent()
    return sender.counts


def modes(name: str) -> Iterator[GenerationMode]:
    """Valid data, and invalid where the operation has anything that can be."""
    yield GenerationMode.POSITIVE
    method, path = name.split(" ")
    operation = document()["paths"][path][method.lower()]
    if "requestBody" in operation or any(each["in"] == "query" for each in operation.get("parameters", ())):
        yield GenerationMode.NEGATIVE
