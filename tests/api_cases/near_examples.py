"""Cases near the example of their operation: what is accepted, with some fields that were generated."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from config.api_examples_reader import SHOWN_IDS, Example, all_examples, with_ids

# Of the fields of an example so many are replaced.
REPLACED = 0.3


@cache
def example_of(name: str) -> Example:
    """With the ids that the document shows."""
    found: Example = with_ids(all_examples()[name], SHOWN_IDS)
    return found


def is_replaceable(name: str) -> bool:
    """Whether the example of the operation has fields."""
    return any(isinstance(example_of(name).get(part), dict) for part in ("body", "query", "headers"))


def replace_some(name: str, case: Any, random: Random) -> None:
    """What the case has takes the place of some fields of the example, at any depth; others are added, or left out."""
    example = example_of(name)
    if isinstance(example.get("body"), dict) and isinstance(case.body, dict):
        case.body = _replaced(example["body"], case.body, random)
    if "text" in example and random.random() > REPLACED:
        case.body = example["text"].encode()
    case.query = _replaced(example.get("query", {}), case.query or {}, random)
    case.headers = _replaced(example.get("headers", {}), dict(case.headers or {}), random)


def _replaced(shown: Any, made: Any, random: Random) -> Any:
    """Of two objects one that has fields of both; of anything else, one of them."""
    if not (isinstance(shown, dict) and isinstance(made, dict)):
        return made if random.random() < REPLACED else shown
    found = {}
    for field in [*shown, *(field for field in made if field not in shown)]:
        if field in shown and field in made:
            found[field] = _replaced(shown[field], made[field], random)
        elif (random.random() < REPLACED) == (field in made):
            found[field] = made.get(field, shown.get(field))
    return found
