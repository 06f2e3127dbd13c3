"""Who may connect to a workspace by SSH, and where."""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.models import Workspace
from workspaces.ssh.keys import PublicKey, described_key


@dataclass(frozen=True, slots=True)
class SshAccess:
    """Of a row with every column. `problem`: why it is not in effect in the guest yet."""

    workspace: Workspace
    problem: str | None = None
    port: int = 22
    user: str = "root"

    @property
    def keys(self) -> list[PublicKey]:
        return [described_key(line) for line in self.workspace.ssh_keys]

    @property
    def applied(self) -> bool:
        return self.problem is None

    @property
    def connection(self) -> SshAccess | None:
        """Itself where one can connect: SSH is on and the machine has an address."""
        return self if self.workspace.ssh_enabled and self.workspace.ip else None

    @property
    def command(self) -> str:
        return f"ssh {self.user}@{self.workspace.ip}"
