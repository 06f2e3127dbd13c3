"""Hooks by which higher apps extend staff (docs/architecture.md, Layers)."""

from __future__ import annotations

from common.hooks import Hook
from common.request_origin import RequestOrigin
from staff.subjects import Subject

# (subject, text, actor, origin), in the transaction of the action: why staff did it, for the activity that the user
# reads. Registered by workspaces and by namespaces, each for what concerns it.
reason_given: Hook[[Subject, str, str, RequestOrigin], None] = Hook("staff.reason_given")
