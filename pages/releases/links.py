"""Links of an archive, which become files once everything is received."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pages.releases.names import NameRefused, entry_path
from pages.releases.received import ReceivedFile

# As the kernel's own limit.
CHAIN = 40


@dataclass(frozen=True, slots=True)
class PendingLink:
    """`leads_to`: the path below the folder that it names, None where it leaves the folder."""

    path: str
    leads_to: str | None

    @classmethod
    def symbolic(cls, path: str, target: str) -> Self:
        """`target` is as the archive has it, relative to the link's folder."""
        return cls(path, None if target.startswith("/") else _resolved(path.split("/")[:-1], target))

    @classmethod
    def hard(cls, path: str, target: str) -> Self:
        """`target` is a name of the archive."""
        try:
            return cls(path, entry_path(target))
        except NameRefused:
            return cls(path, None)


def link_target(
    link: PendingLink, links: Mapping[str, PendingLink], files: Mapping[str, ReceivedFile]
) -> tuple[str, str]:
    """The received file that a link leads to, or "" and the reason why it is left out.

    Only names are looked at. Links inside a target's folders are not followed, so that such a link is left out.
    """
    for _ in range(CHAIN):
        target = link.leads_to
        if target is None:
            return "", "link out of the folder"
        if target in files:
            return target, ""
        following = links.get(target)
        if following is None:
            return "", "link to what is not a received file"
        link = following
    return "", "link to itself"


def _resolved(above: list[str], target: str) -> str | None:
    """The path without `.` and `..`, None where it leaves the folder at any point."""
    parts = list(above)
    for part in target.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
