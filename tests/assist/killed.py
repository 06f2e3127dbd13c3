"""What a process that is killed runs (tests/killed_process.py)."""

from __future__ import annotations

from assist.calls import Finished, call_begin, call_finish
from assist.models import ApiKey
from assist.selectors import paying_namespace
from assist.spent import Spent

DATA = {"request_id": "r", "kind": "generate", "tokens": 7, "duration_ms": 1}


def call_run() -> None:
    """The database work of one call, from its beginning to its end."""
    key = ApiKey.objects.select_related("account__plan", "namespace").get()
    begun = call_begin(key=key, namespace=paying_namespace(key), tokens=1000)
    call_finish(begun=begun, spent=Spent(), finished=Finished("generation.complete", DATA))
