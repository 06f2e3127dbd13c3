"""What a call uses of the model: as its server reports it, or counted by length."""

from __future__ import annotations

from dataclasses import dataclass, field

from assist.model.reading import Answer

# Of text and code in Latin letters; what others need more is the price of a server that does not count.
BYTES_PER_TOKEN = 4
# What a model's template puts around messages.
TEMPLATE_TOKENS = 256


@dataclass(slots=True)
class Spent:
    """The questions of one call. An answer is followed while it comes, so that this holds wherever the call ends: a
    question costs its prompt once the model was asked.
    """

    questions: list[tuple[int, Answer]] = field(default_factory=list)

    def begin(self, question: str) -> Answer:
        """Another question was sent; its answer, still empty."""
        answer = Answer()
        self.questions.append((len(question.encode()), answer))
        return answer

    @property
    def was_asked(self) -> bool:
        """Whether the model was asked anything."""
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
    """What a call with a second try can use at most: a token is a byte at least."""
    sent = len(question.encode()) + TEMPLATE_TOKENS
    return 2 * (sent + output_tokens) + repeated_bytes
