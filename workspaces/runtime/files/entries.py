"""Entries of a tree as responses show them. Ten thousand at once: made without a serializer's call for each field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import basename
from typing import Any

from common.times import iso, moment
from vmbackend.guest.session import TreeEntry
from workspaces.data_plane.fields import path_fields
from workspaces.files.paths import displayed_path
from workspaces.runtime.files.names import extension_of
from workspaces.runtime.files.trees import Batch


@dataclass(frozen=True, slots=True)
class Shown:
    """The wanted fields of entries below `root`. `is_light`: name, path and type alone."""

    root: str
    is_light: bool = False
    with_extensions: bool = False


def entry_bodies(batch: Batch, shown: Shown) -> list[dict[str, Any]]:
    """Return the entries of a batch, in its order."""
    root = shown.root.rstrip("/")
    return [_body(entry, f"{root}/{entry.path}", batch, shown) for entry in batch.entries]


def entry_lines(batch: Batch, shown: Shown) -> bytes:
    """Return the same as JSON, each on a line of its own."""
    return b"".join(json_line(body) for body in entry_bodies(batch, shown))


def json_line(body: Any) -> bytes:
    """Return an object as a line of NDJSON."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def as_tree(batch: Batch, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the bodies of a batch's entries as a tree: folders get `children`."""
    top: list[dict[str, Any]] = []
    places: dict[str, list[dict[str, Any]]] = {}
    for entry, body in zip(batch.entries, bodies, strict=True):
        folder, _, _ = entry.path.rpartition("/")
        places.get(folder, top).append(body)
        if entry.type == "directory" and entry.target is None:
            places[entry.path] = body["children"] = []
    return top


def type_of(entry: TreeEntry) -> str:
    """Return the type of an entry; links are not followed."""
    if entry.target is not None:
        return "symlink"
    if entry.type == "directory":
        return "directory"
    return "file" if entry.is_regular else "other"


def _body(entry: TreeEntry, path: str, batch: Batch, shown: Shown) -> dict[str, Any]:
    body: dict[str, Any] = {"name": displayed_path(basename(path)), **path_fields(path), "type": type_of(entry)}
    if shown.is_light:
        return body
    body |= {"size": entry.size, "modified": iso(moment(entry.modified))}
    optional = {
        "target": None if entry.target is None else displayed_path(entry.target),
        "extension": (displayed_path(extension_of(path)) or None) if shown.with_extensions else None,
        "hash": batch.hashes.get(entry.path),
        "content": batch.contents.get(entry.path),
    }
    return body | {name: value for name, value in optional.items() if value is not None}
