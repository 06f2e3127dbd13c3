"""Links of an archive, which become the files that they name once everything is received.

Only names of the archive are looked at: whatever the guest changes meanwhile, nothing else is reached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from pages.releases.errors import ExportLimit
from pages.releases.limits import ExportLimits
from pages.releases.names import NameRefused, entry_path

OUTSIDE = "link out of the folder"
NOT_RECEIVED = "link to a name that was not received"
CIRCLE = "link to itself"
TAKEN = "duplicate name"


@dataclass(frozen=True, slots=True)
class PendingLink:
    """Link that waits for its target.

    `way`: names from the exported folder to the target, with `.` and `..`; None if that is outside.
    """

    path: str
    way: str | None

    @classmethod
    def symbolic(cls, path: str, target: str, exported: str) -> Self:
        """Return a symbolic link.

        `target` is as the archive has it: relative to the link's folder, or absolute below the exported one.
        """
        if not target.startswith("/"):
            return cls(path, f"{_above(path)}/{target}")
        root = exported.rstrip("/") + "/"
        is_below = root != "/" and f"{target}/".startswith(root)
        return cls(path, f"{target}/".removeprefix(root) if is_below else None)

    @classmethod
    def hard(cls, path: str, target: str) -> Self:
        """Return a hard link. `target` is a name of the archive."""
        try:
            return cls(path, entry_path(target))
        except NameRefused:
            return cls(path, None)


@dataclass(frozen=True, slots=True)
class LinkMade:
    """Path that a link becomes: another name of a received file, or nothing for a reason."""

    path: str
    file: str
    reason: str = ""


@dataclass(slots=True)
class _Way:
    """Position on the way of a link, and the names that are left, the next one last."""

    link: PendingLink
    left: list[str]
    at: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """Place at which `source` is to appear.

    `inside`: the folders above it, which it cannot contain again.
    """

    path: str
    source: str
    inside: frozenset[str]


@dataclass
class LinkTree:
    """Tree of everything that was received, by path.

    `folders` has those that were sent; folders above files and links are added.
    """

    files: Collection[str]
    links: Mapping[str, PendingLink]
    folders: set[str]
    limits: ExportLimits
    _names: dict[str, dict[str, None]] = field(default_factory=dict)
    _found: dict[str, tuple[str, str]] = field(default_factory=dict)
    _places: int = 0
    _steps: int = 0

    def __post_init__(self) -> None:
        """Add the folders above what was sent, which count as sent folders. Raise ExportLimit."""
        for path in (*self.folders, *self.files, *self.links):
            self._add_name(path)

    def _add_name(self, path: str) -> None:
        while path:
            above, _, name = path.rpartition("/")
            names = self._names.setdefault(above, {})
            if len(self._names) > self.limits.entries:
                raise ExportLimit("files", path)
            if name in names:
                return
            names[name] = None
            self.folders.add(above)
            path = above

    def made_of(self, link: PendingLink) -> Iterator[LinkMade]:
        """Yield everything that a link becomes: a file, or each file of a folder, in which inner links become files as
        well.

        A folder within itself is left out. Raise ExportLimit: the files that links become count as sent files.
        """
        self._count_steps(link.path, link.path.count("/"))
        above = _folders_above(link.path)
        if link.path in self.folders or any(folder in self.links for folder in above):
            yield LinkMade(link.path, "", TAKEN)
            return
        open_folders = [iter([_Place(link.path, link.path, above)])]
        while open_folders:
            place = next(open_folders[-1], None)
            if place is None:
                open_folders.pop()
                continue
            self._count(place.path)
            target, reason = self._target(place.source)
            if reason or target in place.inside:
                yield LinkMade(place.path, "", reason or CIRCLE)
            elif target in self.files:
                yield LinkMade(place.path, target)
            else:
                open_folders.append(self._places_in(target, place))

    def _places_in(self, folder: str, at: _Place) -> Iterator[_Place]:
        inside = at.inside | {folder}
        for name in self._names.get(folder, ()):
            yield _Place(f"{at.path}/{name}", f"{folder}/{name}" if folder else name, inside)

    def _count(self, path: str) -> None:
        """Count a place. Folders that links lead to may have links to further ones: their number multiplies."""
        self._places += 1
        if self._places > self.limits.entries:
            raise ExportLimit("files", path)
        if len(path.encode()) > self.limits.path_bytes:
            raise ExportLimit("path_bytes", path)

    def _count_steps(self, path: str, steps: int) -> None:
        self._steps += steps
        if self._steps > self.limits.path_steps:
            raise ExportLimit("path_steps", path)

    def _target(self, path: str) -> tuple[str, str]:
        """Return the file or folder at a path, following a link; else the reason why there is none."""
        link = self.links.get(path)
        if link is None:
            return path, ""
        if path not in self._found:
            self._follow(link)
        return self._found[path]

    def _follow(self, first: PendingLink) -> None:
        """Follow a link, and the links on its way. Each link is followed once, however many lead over it."""
        ways, begun = [self._begin(first)], {first.path}
        while ways:
            way = ways[-1]
            following = self._go(way)
            if following is not None and following.path not in begun:
                ways.append(self._begin(following))
                begun.add(following.path)
                continue
            if following is not None:
                way.reason = CIRCLE
            self._found[way.link.path] = (way.at, way.reason)
            ways.pop()

    def _begin(self, link: PendingLink) -> _Way:
        """Return the beginning of a link's way. Raise ExportLimit before the way is split into its names."""
        if link.way is None:
            return _Way(link, [], reason=OUTSIDE)
        self._count_steps(link.path, link.way.count("/") + 1)
        return _Way(link, link.way.split("/")[::-1])

    def _go(self, way: _Way) -> PendingLink | None:
        """Go to the end of the way, or return a link that must be followed first."""
        while way.left and not way.reason:
            name = way.left.pop()
            if name == "..":
                way.reason = "" if way.at else OUTSIDE
                way.at = _above(way.at)
            elif name not in ("", "."):
                path = f"{way.at}/{name}" if way.at else name
                if path in self.links and path not in self._found:
                    way.left.append(name)
                    return self.links[path]
                way.at, way.reason = self._found.get(path) or self._received(path)
        return None

    def _received(self, path: str) -> tuple[str, str]:
        return (path, "") if path in self.folders or path in self.files else ("", NOT_RECEIVED)


def _above(path: str) -> str:
    return path.rpartition("/")[0]


def _folders_above(path: str) -> frozenset[str]:
    found = {""}
    while path := _above(path):
        found.add(path)
    return frozenset(found)
