"""The OpenAPI document as a whole: groups, their order, access and limits of each route as text."""

from __future__ import annotations

from typing import Any

from config.api_groups import GROUPS, NAMES, group_of

# Ends what a docstring says; generated clients take that alone.
ACCESS = "\n\n**Access.** "
ABOUT = """\
Create, run and look into isolated micro-VM workspaces.

Responses are JSON objects with `success`; an error has `code`, a `message` for people and the `request_id` of the log.
A request may carry its own id in `X-Request-ID`. The errors of code assistance have the form that its group shows.
"""
_CREDENTIALS = {
    "clientId": "client id and secret",
    "accessToken": "an access token",
    "apiKey": "an API key",
    "sandboxToken": "the token of the sandbox in the path",
    "runtimeToken": "a token of the workspace's runtime",
    "sendToken": "a send token",
    "uploadToken": "an upload token",
}
Operation = dict[str, Any]


def describe(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Postprocessing hook."""
    result["info"] |= {
        "description": ABOUT,
        "contact": {"name": "The operator of this installation"},
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    }
    result["servers"] = [{"url": "/", "description": "This installation."}]
    result["tags"] = [{"name": group.name, "description": group.text} for group in GROUPS]
    result["paths"] = dict(sorted(result["paths"].items(), key=lambda item: NAMES.index(group_of(item[0]))))
    for path, operations in result["paths"].items():
        for operation in operations.values():
            operation["tags"] = [group_of(path)]
            operation["description"] += ACCESS + _access(operation) + _limits(operation)
    return result


def _access(operation: Operation) -> str:
    options = [
        _CREDENTIALS[name] for option in operation.get("security", []) for name in option if name in _CREDENTIALS
    ]
    if not options:
        return "Public: the address is enough."
    text = f"With {' or '.join(options)}"
    scopes = operation.get("x-scopes")
    return f"{text}, of scope {' or '.join(scopes)}." if scopes else f"{text}."


def _limits(operation: Operation) -> str:
    limits = operation.get("x-limits", {})
    sizes = [f"A body has at most {limits['body_bytes']:,} bytes."] if "requestBody" in operation and limits else []
    rates = [f"At most {rate['requests']:,} requests in {rate['seconds']} s." for rate in limits.get("rates", [])]
    return "".join(f" {text}" for text in [*sizes, *rates])
