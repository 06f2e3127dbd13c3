"""Tokens that a call uses: as the model's server reports them, or estimated from the length of the texts."""

from __future__ import annotations

from dataclasses import dataclass, field

from assist.model.reading import Answer

# This holds for text and code in Latin letters. Other scripts need more; a server that does not count loses the rest.
BYTES_PER_TOKEN = 4
# Tokens that a model's template puts around messages.
TEMPLATE_TOKENS = 256


@dataclass(slots=True)
class Spent:
    """Questions of one call, with their tokens. An answer is followed while it comes, so that this is right at whatever
    point the call ends: a question costs its prompt once the model was asked.
    """

    questions: list[tuple[int, Answer]] = field(default_factory=list)

    def begin(self, question: str) -> Answer:
        """Note another question that is sent. Return its answer, which is still empty."""
        answer = Answer()
        self.questions.append((len(question.encode()), answer))
        return answer

    @property
    def was_asked(self) -> bool:
        """Return whether the model was asked anything."""
        return any(answer.has_cost for _, answer in self.questions)

    @property
    def tokens(self) -> int:
        return sum(_tokens(*question) for question in self.questions if question[1].has_cost)

    @property
    def is_counted_by_length(self) -> bool:
        return any(answer.output_tokens is None for _, answer in self.questions if answer.has_cost)


def _tokens(sent: int, answer: Answer) -> int:
    if answer.prompt_tokens is not None and answer.output_tokens is not None:
        return answer.prompt_tokens + answer.output_tokens
    return -(-sent // BYTES_PER_TOKEN) + -(-answer.size // BYTES_PER_TOKEN)


def most_tokens(question: str, repeated_bytes: int, output_tokens: int) -> int:
    """Return how many tokens a call with a second try can use at most: a token is at least one byte."""
    sent = len(question.encode()) + TEMPLATE_TOKENS
    return 2 * (sent + output_tokens) + repeated_bytes
