"""Errors as a model reads them: a sentence, the code, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mcp.server.mcpserver.exceptions import ToolError

from microvm.errors import ApiError, ConnectionFailed, InvalidRequest, MicrovmError
from microvm.mcp_server.bounds import MOST_LINE, bounded_text

_HINTS = {
    "vm_not_running": "Start it with start_workspace, or wake it with wake_workspace.",
    "not_found": "list_workspaces, list_snapshots and list_pages show what exists.",
    "path_not_found": "list_files shows what a directory has.",
    "path_invalid": "list_files lists directories; read_file reads regular files.",
    "guest_disk_full": "resize_workspace gives it a larger disk.",
    "SANDBOX_LIMIT_REACHED": "show_plan has the limits; delete_workspace removes one.",
    "SNAPSHOT_LIMIT_REACHED": "delete_snapshot removes one that is not needed any more.",
    "snapshot_not_ready": "list_snapshots has its state.",
    "snapshot_incompatible": "With memory false it boots from the disk of the snapshot.",
    "POOL_LIMIT_REACHED": "show_plan has the limits; ask for less, or delete_workspace.",
    "RUNNING_POOL_REACHED": "show_plan has the limits; stop_workspace frees some.",
    "RESOURCE_NOT_ALLOWED": "show_plan has the limits; ask for less.",
    "workload_exists": "remove_workload removes that one.",
    "operation_in_progress": "Wait a few seconds, then look with show_workspace.",
    "unauthorized": "The server's own credential is not valid any more: its user must log in again.",
}


@contextmanager
def tool_errors() -> Iterator[None]:
    """Turns errors of the client into errors of a tool. ValueError is one of the arguments."""
    try:
        yield
    except ApiError as error:
        raise ToolError(bounded_text(_sentence(error), MOST_LINE)[0]) from error
    except ConnectionFailed as error:
        raise ToolError("The platform does not answer. What was asked for may have been done: look first.") from error
    except (MicrovmError, ValueError) as error:
        raise ToolError(bounded_text(str(error), MOST_LINE)[0]) from error


def _sentence(error: ApiError) -> str:
    parts = [error.message]
    if isinstance(error, InvalidRequest) and isinstance(error.details, dict):
        parts.append("; ".join(f"{name}: {text}" for name, text in error.details.items()))
    parts.append(f"[{error.code or error.status}]")
    if error.retry_after:
        parts.append(f"Try again in {error.retry_after:g} seconds.")
    parts.append(_HINTS.get(error.code, ""))
    return " ".join(part for part in parts if part)
