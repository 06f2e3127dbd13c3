"""Python client of the micro-VM workspace platform."""

from microvm.aio.client import AsyncMicrovm
from microvm.commands import CommandExit, CommandOutput, ExactResult
from microvm.credentials import AccessTokens
from microvm.errors import ApiError, ConnectionFailed, MicrovmError, WaitTimeout
from microvm.retries import Retries
from microvm.sync.client import Microvm

__all__ = [
    "AccessTokens",
    "ApiError",
    "AsyncMicrovm",
    "CommandExit",
    "CommandOutput",
    "ConnectionFailed",
    "ExactResult",
    "Microvm",
    "MicrovmError",
    "Retries",
    "WaitTimeout",
]
