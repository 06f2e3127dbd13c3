"""Reasons why there is no answer. A `sentence` is for callers: it holds nothing that the model or its server has said,
nor the address, the model's name or the key.
"""

from __future__ import annotations


class ModelError(Exception):
    """Failure of a question. `may_repeat`: the same question may be answered if it is asked once more."""

    may_repeat = False

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)


class ModelUnreachable(ModelError):
    """Failure before an answer: nothing was sent, or no answer began."""


class AnswerBroken(ModelError):
    """Broken answer: the connection ended, or the bytes are not a chat completion."""

    may_repeat = True


class AnswerTooLong(ModelError):
    """Answer with more bytes than an answer may have."""


class ServerRefused(ModelError):
    """Response with another status than 200. `retry_after` is in seconds, if the server named a time."""

    def __init__(self, status: int, retry_after: float | None) -> None:
        self.status, self.retry_after = status, retry_after
        super().__init__(_SENTENCES.get(status, f"The model's server refused the question (status {status})."))

    @property
    def is_busy(self) -> bool:
        return self.status in (429, 503)

    @property
    def may_be_the_format(self) -> bool:
        """Return whether the server may have refused the `response_format`: servers that do not know it answer 400, 422
        or 500.
        """
        return self.status not in (401, 403, 404, 429, 503)


_SENTENCES = {
    401: "The model's server did not accept the key of this installation.",
    403: "The model's server did not accept the key of this installation.",
    404: "The model's server does not have the configured model or address.",
    429: "The model's server is busy; try again later.",
    503: "The model's server is busy; try again later.",
}
