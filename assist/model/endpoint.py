"""Address of the model, and how it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JSON_SCHEMA, JSON_OBJECT, NO_FORMAT = "json_schema", "json_object", "none"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and settings of the model. `seconds`: of a whole call, second try included. `format`: the
    `response_format` that is sent first.
    """

    url: str
    model: str
    key: str = field(repr=False)
    format: str
    output_tokens: int
    connect_seconds: float
    seconds: float

    @property
    def completions_url(self) -> str:
        return f"{self.url}/chat/completions"

    def headers(self) -> dict[str, str]:
        # No compression: a few compressed bytes may become any number.
        fixed = {"Accept": "text/event-stream, application/json", "Accept-Encoding": "identity"}
        return {**fixed, "Authorization": f"Bearer {self.key}"} if self.key else fixed

    def body(
        self, messages: list[dict[str, str]], *, name: str, schema: Mapping[str, Any], plain: bool
    ) -> dict[str, Any]:
        """Return the body of a question. `plain` leaves out all but the fields that every server takes; it is for a
        server that refused the rest.
        """
        asked: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "max_tokens": self.output_tokens,
            "temperature": 0.2,
            "stream": True,
        }
        if plain:
            return asked
        asked["stream_options"] = {"include_usage": True}
        if self.format == JSON_OBJECT:
            asked["response_format"] = {"type": "json_object"}
        elif self.format == JSON_SCHEMA:
            described = {"name": name, "strict": True, "schema": schema}
            asked["response_format"] = {"type": "json_schema", "json_schema": described}
        return asked
