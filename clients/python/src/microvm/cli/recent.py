"""The memory of `ws` beside the profiles: the last created workspace, and the tokens of sandboxes that it made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from microvm.cli.profiles import PrivateFile, config_folder

MOST_SANDBOXES = 100


@dataclass(frozen=True)
class SavedSandbox:
    """How a sandbox is reached."""

    id: str
    name: str
    url: str
    token: str = field(repr=False)


class RecentStore:
    """The memory of one account: `account` is an address and a credential's id."""

    def __init__(self, account: str, folder: Path | None = None) -> None:
        self._file = PrivateFile((folder or config_folder()) / "recent.json")
        self._account = account

    def last(self) -> str | None:
        """The id of the workspace or sandbox that was created last."""
        found = self._part().get("last")
        return str(found) if found else None

    def remember(self, workspace: str) -> None:
        self._update(lambda part: part.update(last=workspace))

    def forget(self, workspace: str) -> None:
        """After it was deleted."""

        def change(part: dict[str, Any]) -> None:
            if part.get("last") == workspace:
                part.pop("last")
            part.get("sandboxes", {}).pop(workspace, None)

        self._update(change)

    def remember_sandbox(self, sandbox: SavedSandbox) -> None:
        """The oldest are dropped beyond a hundred."""

        def change(part: dict[str, Any]) -> None:
            kept = part.setdefault("sandboxes", {})
            kept.pop(sandbox.id, None)
            kept[sandbox.id] = asdict(sandbox)
            for old in list(kept)[:-MOST_SANDBOXES]:
                kept.pop(old)

        self._update(change)

    def sandbox(self, reference: str) -> SavedSandbox | None:
        """By id, or by name where one has it."""
        kept = [SavedSandbox(**fields) for fields in self._part().get("sandboxes", {}).values()]
        named = [each for each in kept if each.id == reference] or [each for each in kept if each.name == reference]
        return named[-1] if named else None

    def _part(self) -> dict[str, Any]:
        found = self._file.content().get(self._account, {})
        return found if isinstance(found, dict) else {}

    def _update(self, change: Any) -> None:
        self._file.update(lambda content: change(content.setdefault(self._account, {})))
