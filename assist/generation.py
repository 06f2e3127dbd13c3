"""Generation of a validated answer from a request: at most two questions to the model, within one deadline."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import Any

from assist.errors import GenerationFailed
from assist.model.client import ask_model
from assist.model.endpoint import Endpoint
from assist.model.errors import AnswerTooLong, ModelError, ServerRefused
from assist.model.reading import Answer
from assist.routes import AssistRoute
from assist.spent import Spent
from assist.validation import InvalidAnswer, answer_fields

logger = logging.getLogger(__name__)

TRIES = 2
LENGTH = "length"
# Bytes of an invalid answer that the next question repeats.
REPEATED_BYTES = 8 * 1024
# Bytes of the sentence around them.
CORRECTION_BYTES = 512
NOT_VALID = "The model's answer does not have the documented fields, even after a second try."


@dataclass(slots=True)
class Question:
    """Next question to the model. `plain` leaves out the fields that a server may not know."""

    messages: list[dict[str, str]]
    plain: bool = False

    @property
    def text(self) -> str:
        return "".join(message["content"] for message in self.messages)


def first_question(route: AssistRoute, sent: dict[str, Any]) -> Question:
    """Return the first question. Users' texts go as one JSON object into a message of their own, never into the
    instruction.
    """
    return Question(
        [
            {"role": "system", "content": route.instruction},
            {"role": "user", "content": json.dumps(sent, ensure_ascii=False)},
        ]
    )


async def answer_generate(endpoint: Endpoint, route: AssistRoute, question: Question, spent: Spent) -> dict[str, Any]:
    """Return the fields of the route's answer. Raise GenerationFailed. `spent` knows the tokens that came, also if this
    call is cancelled.
    """
    try:
        async with asyncio.timeout(endpoint.seconds) as limit:
            return await _asked(endpoint, route, question, spent, limit.when() or 0.0)
    except TimeoutError as exc:
        raise GenerationFailed(f"The model did not answer within {endpoint.seconds:g} seconds.") from exc
    except ModelError as exc:
        # The log has our own sentence, because a server's words may hold anything.
        logger.warning("no answer to %s: %s", route.name, exc.sentence)
        raise GenerationFailed(exc.sentence) from exc


async def _asked(
    endpoint: Endpoint, route: AssistRoute, question: Question, spent: Spent, ends_at: float
) -> dict[str, Any]:
    for number in range(1, TRIES + 1):
        try:
            answer = await _ask(endpoint, route, question, spent, ends_at)
            return answer_fields(answer.text, route.schema)
        except InvalidAnswer as exc:
            if answer.finish_reason == LENGTH:
                message = f"The model's answer was cut off at {endpoint.output_tokens} tokens; ask for less at a time."
                raise GenerationFailed(message) from exc
            logger.info("the answer %d to %s is not valid: %s", number, route.name, exc.reason)
            _correct(question, answer, exc.reason)
        except ModelError as exc:
            if number == TRIES or not _may_repeat(exc, endpoint, question):
                raise
            question.plain = isinstance(exc, ServerRefused)
    raise GenerationFailed(NOT_VALID)


def _may_repeat(error: ModelError, endpoint: Endpoint, question: Question) -> bool:
    if isinstance(error, ServerRefused):
        return error.may_be_the_format and not question.plain
    return error.may_repeat and not isinstance(error, AnswerTooLong)


async def _ask(endpoint: Endpoint, route: AssistRoute, question: Question, spent: Spent, ends_at: float) -> Answer:
    """Ask. If the server is busy and says when to return within the deadline, wait that long and ask once more."""
    body = endpoint.body(question.messages, name=route.name, schema=route.schema, plain=question.plain)
    answer = spent.begin(question.text)
    try:
        await ask_model(endpoint, body, answer)
    except ServerRefused as exc:
        left = ends_at - asyncio.get_running_loop().time()
        if not exc.is_busy or exc.retry_after is None or exc.retry_after >= left:
            raise
        await asyncio.sleep(exc.retry_after)
        await ask_model(endpoint, body, answer)
    return answer


def _correct(question: Question, answer: Answer, reason: str) -> None:
    """Add the invalid answer and the reason to the question. Roles alternate, because the templates of some models want
    it.
    """
    said = answer.text.encode("utf-8", "ignore")[:REPEATED_BYTES].decode("utf-8", "ignore")
    if not said.strip():
        return
    question.messages = [
        *question.messages[:2],
        {"role": "assistant", "content": said},
        {"role": "user", "content": f"That was not valid: {reason}. Answer with the one JSON object and nothing else."},
    ]
