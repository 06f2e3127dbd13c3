"""The groups of the OpenAPI document, in the order of the specification; what it does not have comes after it.

A group has the operations whose path matches; the first one counts, so more special ones are tried first (`RULES`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    name: str
    text: str
    paths: str


_W = r"/workspace/\{workspace_id\}"
_S = r"/s/\{sandbox_id\}"
GROUPS = [
    Group("Workspaces", "Create, read, list, change and delete workspaces.", r"/workspace(/.*)?"),
    Group("Resources", "Processors, memory and disk of a workspace.", rf"{_W}/resources"),
    Group(
        "Usage and activity",
        "What was used and charged, and what happened.",
        rf"/workspace/(usage|activity)|{_W}/usage(/.*)?",
    ),
    Group(
        "Metrics", "Statistics of running workspaces, once or as an event stream.", rf"{_W}/(stats(/.*)?|info|config)"
    ),
    Group("Logs", "The console and the programs of a workspace.", rf"{_W}/logs(/.*)?"),
    Group("Filesystem", "Files and the disk of a workspace.", rf"{_W}/overlay(/.*)?"),
    Group("Images", "The catalog of images.", r"/workspace/images"),
    Group("Metadata", "Values that a caller keeps with a workspace.", rf"{_W}/metadata"),
    Group(
        "Lifecycle and power",
        "Start, stop, pause, sleep, reinstall; idle time and time to live.",
        rf"{_W}/(start|stop|restart|pause|resume|sleep|reinstall|ping|lifecycle(/.*)?)",
    ),
    Group("Workloads", "Programs of a running workspace, changed while it runs.", rf"{_W}/workloads(/.*)?"),
    Group("Commands", "Commands in a running workspace.", rf"{_W}/exec(/.*)?"),
    Group("SSH", "Access by SSH.", rf"{_W}/ssh(/.*)?"),
    Group(
        "Network",
        "Network policies, public ports and custom domains of workspaces.",
        rf"{_W}/(network|public-access|domain)(/.*)?",
    ),
    Group("Sandboxes", "Sandboxes, by the credentials of their account.", r"/sandbox(/.*)?"),
    Group("Sandbox: files", "By the token of the sandbox, also at its own address.", rf"{_S}/files/.*"),
    Group("Sandbox: search", "By the token of the sandbox, also at its own address.", rf"{_S}/search(/.*)?"),
    Group("Sandbox: git", "By the token of the sandbox, also at its own address.", rf"{_S}/git/.*"),
    Group("Sandbox: terminal", "By the token of the sandbox, also at its own address.", rf"{_S}/terminal"),
    Group("Pages", "Static sites, their releases and domains.", r"/pages(/.*)?|/domain/check-slug"),
    Group("Notifications", "Send tokens, devices, and sending.", r"/notifications(/.*)?"),
    Group("Namespaces", "Namespaces with their limits, activity and use.", r"/namespaces(/.*)?"),
    Group("Credit quotas", "Quotas of namespaces by service, and defaults.", r"/credits(/.*)?"),
    Group("Code assistance", "Code by a model. Errors have a form of their own here.", r"/v1/blurs/.*"),
    Group("CDN", "Files that are delivered, their quotas and policies.", r"/cdn(/.*)?"),
    Group("Webhooks", "Where events are sent to.", r"/webhooks(/.*)?"),
    Group("Credentials", "Client credentials, access tokens and API keys.", r"/(credentials|tokens|api-keys)(/.*)?"),
]
NAMES = [group.name for group in GROUPS]
_RULES = [(re.compile(group.paths), group.name) for group in [*GROUPS[1:], GROUPS[0]]]


def group_of(path: str) -> str:
    """The name of the group of a path. Raises LookupError for one that no group has."""
    for rule, name in _RULES:
        if rule.fullmatch(path):
            return name
    raise LookupError(f"No group of the OpenAPI document has {path}: platform/config/api_groups.py.")
