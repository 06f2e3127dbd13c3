"""The three routes: the question of each to the model, and the one schema of its answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

_PROMPTS = Path(__file__).parent / "prompts"
_TEXT = {"type": "string"}


def _object(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object that has all of these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class AssistRoute:
    """A route. `prompt`: a file in `prompts/`, which is never changed: another text is another version. `event`:
    published when a call has its answer.
    """

    name: str
    prompt: str
    schema: dict[str, Any]
    event: str

    @property
    def instruction(self) -> str:
        return _text(self.prompt)


@lru_cache
def _text(name: str) -> str:
    return (_PROMPTS / name).read_text(encoding="utf-8").strip()


GENERATE = AssistRoute(
    "generate",
    "generate.v1.md",
    _object(code=_TEXT, explanation=_TEXT, suggestions={"type": "array", "items": _TEXT}),
    "generation.complete",
)
DEBUG = AssistRoute(
    "debug",
    "debug.v1.md",
    _object(analysis=_TEXT, fix=_TEXT, explanation=_TEXT, prevention=_TEXT),
    "generation.complete",
)
OPTIMIZE = AssistRoute(
    "optimize",
    "optimize.v1.md",
    _object(
        analysis=_TEXT,
        optimizations={
            "type": "array",
            "items": _object(type=_TEXT, code=_TEXT, improvement=_TEXT, explanation=_TEXT),
        },
    ),
    "optimization.complete",
)
EVENTS = (GENERATE.event, OPTIMIZE.event)
