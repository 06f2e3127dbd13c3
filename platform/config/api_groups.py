"""The groups of the OpenAPI document, in the order of the specification; what it does not have comes after it."""

from __future__ import annotations

import re

from common.api_groups import ApiGroup
from config.app_list import app_modules

_ORDER = (
    "Workspaces",
    "Resources",
    "Usage and activity",
    "Metrics",
    "Logs",
    "Filesystem",
    "Images",
    "Metadata",
    "Lifecycle and power",
    "Workloads",
    "Commands",
    "SSH",
    "Network",
    "Sandboxes",
    "Sandbox: files",
    "Sandbox: search",
    "Sandbox: git",
    "Sandbox: terminal",
    "Pages",
    "Notifications",
    "Namespaces",
    "Credit quotas",
    "Code assistance",
    "CDN",
    "Webhooks",
    "Credentials",
)
_OF_APPS: list[ApiGroup] = [group for app in app_modules("openapi_settings") for group in getattr(app, "GROUPS", ())]


def _place(group: ApiGroup) -> int:
    return _ORDER.index(group.name) if group.name in _ORDER else len(_ORDER)


GROUPS = sorted((group for group in _OF_APPS if group.text), key=_place)
NAMES = [group.name for group in GROUPS]
_RULES = [(re.compile(group.paths), group.name) for group in _OF_APPS]


def group_of(path: str) -> str:
    """Return the name of the group of a path. Raise LookupError for one that no group has."""
    for rule, name in _RULES:
        if rule.fullmatch(path):
            return name
    raise LookupError(f"No group of the OpenAPI document has {path}: GROUPS in its app's openapi_settings.py.")
