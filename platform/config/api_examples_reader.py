"""The examples of the OpenAPI document: `api_examples/<group>.json`, operation -> what is sent, and what is answered.

A test sends each of them and compares the answer with the one here (tests/api_cases/test_examples.py); `make examples`
writes the answers again. Fields of an example:

    query, headers, body    what is sent; `{placeholder}` in a text is the id of a thing of the test
    text, base64            a body that is no JSON, or its bytes
    shown                   that body as the document shows it: a form's fields
    before                  requests that are sent first: [{request: "METHOD /path", body}]
    status, answer          what is answered; `answer_text` for what is no JSON
    content_type            of the answer
    fresh                   true: nothing that another example made may be there
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "api_examples"
# A value for each placeholder, as the document shows it.
SHOWN_IDS = {
    "workspace_id": "ws_3ocedbb6bnvtwvq2",
    "sandbox_id": "sbx_3ocedbb6bnvtwvq2",
    "namespace_id": "ns_3ocecy2c637uzfcw",
    "namespace": "default",
    "page": "the-documentation",
    "file_id": "file_3ocecy2d2go623lj",
    "token": "cup_example",
    "credential_id": "cred_3ocecy2d2go623lj",
    "api_key_id": "key_3ocecy2d2go623lj",
    "token_id": "snd_3ocecy2d2go623lj",
    "device_id": "phone-1",
    "webhook_id": "5137209846021377",
    "delivery_id": "dlv_3ocecy2d2go623lj",
    "workload_id": "web",
    "stdin_key": "my-tar-of-today-0001",
    "port": "8080",
    "link_id": "lnk_3ocecy2d2go623lj",
    "name": "boot.log",
    "source": "boot",
}

Example = dict[str, Any]


def all_examples() -> dict[str, Example]:
    """Return the examples by `METHOD /path`."""
    return {name: example for path in sorted(FOLDER.glob("*.json")) for name, example in _read(path).items()}


def _read(path: Path) -> dict[str, Example]:
    found: dict[str, Example] = json.loads(path.read_text())
    return found


def with_ids(value: Any, ids: dict[str, str]) -> Any:
    """Return the value with ids in place of `{placeholder}`."""
    if isinstance(value, dict):
        return {name: with_ids(each, ids) for name, each in value.items()}
    if isinstance(value, list):
        return [with_ids(each, ids) for each in value]
    if isinstance(value, str):
        for name, shown in ids.items():
            value = value.replace(f"{{{name}}}", shown)
    return value


def add_examples(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Postprocessing hook, the last one: each operation has its example. Return plain JSON, also if a bound is a
    Decimal or a text is lazy.
    """
    examples = all_examples()
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            _add(operation, with_ids(examples.get(f"{method.upper()} {path}", {}), SHOWN_IDS))
    plain: dict[str, Any] = json.loads(json.dumps(result, default=_plain))
    return plain


def _plain(value: Any) -> float | str:
    return float(value) if isinstance(value, Decimal) else str(value)


def _add(operation: dict[str, Any], example: Example) -> None:
    for parameter in operation.get("parameters", ()):
        sent = {"path": SHOWN_IDS, "query": example.get("query", {}), "header": example.get("headers", {})}
        if parameter["name"] in sent.get(parameter["in"], {}):
            value = sent[parameter["in"]][parameter["name"]]
            parameter["example"] = int(value) if parameter["schema"].get("type") == "integer" else value
    for name in ("body", "text"):
        if name in example:
            content = operation["requestBody"]["content"]
            kind = "application/json" if name == "body" else next(iter(content))
            content[kind]["example"] = example.get("shown", example[name])
    response = operation["responses"].get(str(example.get("status")), {})
    for name in ("answer", "answer_text"):
        if name in example and "content" in response:
            response["content"][example["content_type"]]["example"] = example[name]
