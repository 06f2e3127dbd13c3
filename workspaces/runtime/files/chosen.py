"""Choosing entries of a tree by their names, as they come."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from vmbackend.guest.session import TreeEntry
from workspaces.runtime.files.names import extension_of, is_code


@dataclass(slots=True)
class Chooser:
    """A filter of entries that come in the order of a walk.

    `root`: the path of the tree, which `path_filter` is compared with, too. `with_folders`: folders that lead to a
    chosen entry are chosen, as a tree needs them. Extensions choose among files: folders stay.
    """

    root: str = "/"
    path_filter: str = ""
    extensions: Collection[str] = ()
    code_only: bool = False
    with_folders: bool = False
    # Those above the entry that comes next that were not chosen.
    _above: list[TreeEntry] = field(default_factory=list)

    def choose(self, entries: Sequence[TreeEntry]) -> list[TreeEntry]:
        """Return the chosen ones of the next entries."""
        if not (self.path_filter or self.extensions or self.code_only):
            return list(entries)
        return [chosen for entry in entries for chosen in self._chosen(entry)]

    def _chosen(self, entry: TreeEntry) -> Iterator[TreeEntry]:
        while self._above and not entry.path.startswith(f"{self._above[-1].path}/"):
            self._above.pop()
        if self._is_wanted(entry):
            yield from self._above
            self._above.clear()
            yield entry
        elif self.with_folders and entry.type == "directory" and entry.target is None:
            self._above.append(entry)

    def _is_wanted(self, entry: TreeEntry) -> bool:
        is_folder = entry.type == "directory"
        if self.extensions and not is_folder and extension_of(entry.path).lower() not in self.extensions:
            return False
        if self.code_only and not is_folder and not is_code(entry.path):
            return False
        return not self.path_filter or self._matches(f"{self.root.rstrip('/')}/{entry.path}")

    def _matches(self, path: str) -> bool:
        if "*" in self.path_filter or "?" in self.path_filter:
            return fnmatchcase(path, self.path_filter) or fnmatchcase(path, f"*/{self.path_filter}")
        return self.path_filter in path
