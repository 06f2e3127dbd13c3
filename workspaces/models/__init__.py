"""The rows of this room."""

from workspaces.models.activity import Activity
from workspaces.models.operation import Operation
from workspaces.models.workspace import Workspace

__all__ = ["Activity", "Operation", "Workspace"]
