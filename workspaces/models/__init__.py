"""The models of the app."""

from workspaces.images.models import CatalogEntry
from workspaces.models.activity import Activity
from workspaces.models.charging import (
    BillingCycle,
    ChargePosition,
    CheckPosition,
    CycleUsage,
    LateRecord,
    NamespaceHour,
    NamespaceMinute,
    NamespaceTick,
    WorkspaceHour,
)
from workspaces.models.drain import Drain
from workspaces.models.move import Arrival, Move
from workspaces.models.operation import Operation
from workspaces.models.port_link import PortLink
from workspaces.models.public_port import PublicPort
from workspaces.models.released_address import ReleasedAddress
from workspaces.models.snapshot import Snapshot
from workspaces.models.stream_token import StreamToken
from workspaces.models.usage import Metered, MeterRecord, Usage, UsagePoint
from workspaces.models.warm_machine import WarmMachine, WarmRequest
from workspaces.models.workspace import Workspace

__all__ = [
    "Activity",
    "Arrival",
    "BillingCycle",
    "CatalogEntry",
    "ChargePosition",
    "CheckPosition",
    "CycleUsage",
    "Drain",
    "LateRecord",
    "MeterRecord",
    "Metered",
    "Move",
    "NamespaceHour",
    "NamespaceMinute",
    "NamespaceTick",
    "Operation",
    "PortLink",
    "PublicPort",
    "ReleasedAddress",
    "Snapshot",
    "StreamToken",
    "Usage",
    "UsagePoint",
    "WarmMachine",
    "WarmRequest",
    "Workspace",
    "WorkspaceHour",
]
