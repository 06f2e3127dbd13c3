"""One question to the configured model, for `manage.py assist_check`."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from assist.errors import GenerationFailed
from assist.generation import answer_generate, first_question
from assist.model.endpoint import Endpoint
from assist.requests import configured_endpoint
from assist.routes import GENERATE
from assist.spent import Spent

QUESTION = {"prompt": "a function that adds two numbers", "language": "python"}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check. `error` is empty if the answer fits the schema. `questions`: one, or two if the first answer
    was not valid.
    """

    seconds: float
    tokens: int
    is_counted_by_length: bool
    questions: int
    error: str = ""


def check_model() -> CheckResult:
    """Ask the model one question, which neither counts nor costs anything. Raise GenerationFailed if no model is
    configured.
    """
    return asyncio.run(_ask(configured_endpoint()))


async def _ask(endpoint: Endpoint) -> CheckResult:
    spent, begun, error = Spent(), time.monotonic(), ""
    try:
        await answer_generate(endpoint, GENERATE, first_question(GENERATE, QUESTION), spent)
    except GenerationFailed as exc:
        error = exc.message
    seconds = time.monotonic() - begun
    return CheckResult(seconds, spent.tokens, spent.is_counted_by_length, len(spent.questions), error)
