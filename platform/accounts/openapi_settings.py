"""This app's part of the OpenAPI document's settings (config/app_list.py)."""

from __future__ import annotations

from typing import Any

from common.api_groups import ApiGroup

ENUM_NAME_OVERRIDES: dict[str, Any] = {
    "CredentialScope": "accounts.scopes.Scope",
    "TokenScope": [("account", "account"), ("namespace", "namespace"), ("workspace", "workspace")],
}
GROUPS = [
    ApiGroup("Credentials", "Client credentials, access tokens and API keys.", r"/(credentials|tokens)(/.*)?"),
]
