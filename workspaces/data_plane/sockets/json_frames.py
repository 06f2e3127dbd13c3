"""Messages of clients that are JSON. Parsing only: nothing here waits."""

from __future__ import annotations

import json
from typing import Any

from common.json_objects import require_few_tokens

# Strings, commas and brackets together, above what any message needs: a message of brackets alone takes the loop half a
# second.
MAX_TOKENS = 20_000


def read_object(text: str) -> dict[str, Any]:
    """Return the object that a message is. Raise ValueError with a sentence for its client."""
    try:
        if len(text) > MAX_TOKENS:
            require_few_tokens(text.encode(), MAX_TOKENS)
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("The message is not valid JSON.") from error
    if not isinstance(found, dict):
        raise ValueError("A message is a JSON object.")
    return found
