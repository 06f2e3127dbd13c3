"""Snapshots of the fake host that go to other fake hosts, and come from them.

exports/ID/manifest.json disk-0.raw memory    a snapshot's files as another host copies them; the disk is a tar file
incoming/ID/                                  such files of another host, until they are a snapshot
lacks.json                                    a test's differences of this host from what any memory needs
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vmbackend.copies import Difference, StoredSnapshot
from vmbackend.driver import MachineState
from vmbackend.errors import InvalidMachineState, SavedMemoryUnusable, SnapshotIncompatible
from vmbackend.fake.copies import FakeCopies
from vmbackend.fake.machines import MOVED_FILE, TAKEN_FILE
from vmbackend.fake.store import MEMORY_FILE, Domain
from vmbackend.plain_files import read_object, read_plain, require_plain

_DISK_FILE = "disk-0.raw"
_MANIFEST = "manifest.json"
_MANIFEST_MAX = 64 << 10
_MEMORY_MAX = 1 << 30
_FACTS = {"memory": bool, "size_bytes": int, "disk_mb": int, "made_at": float, "image": str, "memory_mb": int}
_NEEDS = ("cpus", "memory_mb", "image")


class FakeMoves(FakeCopies):
    """The contract of `vmbackend.moves`. `crash_hook` is called with `receive:fetched` and `sleep_on:half`."""

    def snapshot_needs(self, snapshot_id: str) -> dict[str, Any]:
        self._enter("snapshot_needs")
        stored, raw = self._require_stored(snapshot_id), self._manifest(snapshot_id) or {}
        return {name: raw[name] for name in _NEEDS} if stored.memory else {}

    def compare_needs(self, needs: Mapping[str, Any]) -> tuple[Difference, ...]:
        self._enter("compare_needs")
        if isinstance(needs, Mapping) and not needs:
            return ()
        if not isinstance(needs, Mapping) or needs.keys() != set(_NEEDS) or not isinstance(needs["image"], str):
            return (Difference("description of the memory", "another version's", "this version's"),)
        lacks = self._store.root / "lacks.json"
        found = [Difference(**each) for each in json.loads(lacks.read_text())] if lacks.exists() else []
        if self._images is not None and needs["image"] not in self._images:
            found.append(Difference("files of the image", needs["image"], "missing"))
        return tuple(found)

    def set_lacks(self, *differs: Difference) -> None:
        """Let the host differ from what the memory of any other host needs, or not any more."""
        self._store.write(self._store.root / "lacks.json", json.dumps([asdict(each) for each in differs]))

    def snapshot_folder(self, snapshot_id: str) -> Path:
        self._enter("snapshot_folder")
        with self._store.locked():
            self._require_stored(snapshot_id)
            folder = self._store.root / "exports" / snapshot_id
            if not folder.exists():
                self._export(self._store.snapshot(snapshot_id), folder)
            return folder

    def receive_snapshot(self, snapshot_id: str, fetch: Callable[[Path], None], *, size_bytes: int) -> StoredSnapshot:
        self._enter("receive_snapshot")
        found = self._stored(snapshot_id)
        if found is not None:
            return found
        folder = self._fetched(snapshot_id, fetch, size_bytes)
        self._hook("receive:fetched")
        try:
            self._import(folder, snapshot_id)
        except (ValueError, tarfile.TarError) as error:
            self.drop_received(snapshot_id)
            raise SnapshotIncompatible(f"The other host did not send a snapshot of this version: {error}.") from error
        shutil.rmtree(folder)
        return self._require_stored(snapshot_id)

    def begin_receiving(self, snapshot_id: str, fetch: Callable[[Path], None], *, size_bytes: int) -> None:
        self._enter("begin_receiving")
        self._fetched(snapshot_id, fetch, size_bytes)

    def _fetched(self, snapshot_id: str, fetch: Callable[[Path], None], size_bytes: int) -> Path:
        folder = self._incoming(snapshot_id)
        self._require_disk(-(-size_bytes >> 20))
        folder.mkdir(parents=True, exist_ok=True)
        fetch(folder)
        return folder

    def drop_received(self, snapshot_id: str) -> None:
        self._enter("drop_received")
        shutil.rmtree(self._incoming(snapshot_id), ignore_errors=True)

    def received_ids(self) -> frozenset[str]:
        self._enter("received_ids")
        folder = self._store.root / "incoming"
        return frozenset(path.name for path in folder.iterdir()) if folder.exists() else frozenset()

    def sleep_on(self, machine_id: str, snapshot_id: str) -> None:
        self._enter("sleep_on")
        with self._store.locked():
            domain, directory = self._known(machine_id), self._store.directory(machine_id)
            if domain.state is MachineState.ASLEEP and _text(directory / MOVED_FILE) == snapshot_id:
                return
            stored = self._require_stored(snapshot_id)
            if domain.state is not MachineState.OFF or _text(directory / TAKEN_FILE) != snapshot_id:
                raise InvalidMachineState("The machine is not off, or its disk is not the snapshot's.")
            self._check_fits(domain, stored)
            shutil.copyfile(self._store.snapshot(snapshot_id) / MEMORY_FILE, directory / MEMORY_FILE)
            self._store.write(directory / MOVED_FILE, snapshot_id)
            self._hook("sleep_on:half")
            self._store.write(self._store.saved_memory(machine_id), "whole")
            self._store.save(domain, state=MachineState.ASLEEP, ready_at=None, ready_in=0.0)

    def sync_machine(self, machine_id: str) -> None:
        self._enter("sync_machine")
        self._known(machine_id)

    def _restore(self, domain: Domain) -> None:
        """Load its memory, with a generation of its own if it is a snapshot's. Raise SavedMemoryUnusable."""
        moved = self._store.directory(domain.spec.id) / MOVED_FILE
        if not moved.exists():
            super()._restore(domain)
            return
        saved = self._store.saved_memory(domain.spec.id)
        if _text(saved) != "whole":
            self._drop_memory(domain)
            raise SavedMemoryUnusable("The machine's memory could not be loaded and was dropped.")
        self._run_renewed(domain)
        saved.unlink()
        moved.unlink()

    def _incoming(self, snapshot_id: str) -> Path:
        if not snapshot_id.replace("_", "").isalnum():
            raise SnapshotIncompatible("No snapshot has such an id.")
        return self._store.root / "incoming" / snapshot_id

    def _export(self, snapshot: Path, folder: Path) -> None:
        beside = folder.with_name(f".{folder.name}")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        with tarfile.open(beside / _DISK_FILE, "w") as tar:
            tar.add(snapshot / "disk", arcname=".")
        for name in (_MANIFEST, MEMORY_FILE):
            if (snapshot / name).exists():
                shutil.copyfile(snapshot / name, beside / name)
        beside.rename(folder)

    def _import(self, folder: Path, snapshot_id: str) -> None:
        """Make a snapshot of the files in the folder. Raise ValueError, TarError; nothing is left then."""
        manifest = _read_manifest(folder / _MANIFEST)
        memory = {MEMORY_FILE} if manifest["memory"] else set()
        require_plain(folder, {_MANIFEST, _DISK_FILE, *memory})
        beside = self._store.snapshot(f".{snapshot_id}")
        shutil.rmtree(beside, ignore_errors=True)
        try:
            (beside / "disk").mkdir(parents=True)
            with tarfile.open(folder / _DISK_FILE) as tar:
                if any(name.startswith("/") or ".." in Path(name).parts for name in tar.getnames()):
                    raise ValueError("the disk has files outside of it")
                tar.extractall(beside / "disk")  # noqa: S202 - of a fake host, in tests
            if memory:
                (beside / MEMORY_FILE).write_bytes(read_plain(folder / MEMORY_FILE, _MEMORY_MAX))
            (beside / _MANIFEST).write_text(json.dumps(manifest))
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        beside.rename(self._store.snapshot(snapshot_id))


def _read_manifest(path: Path) -> dict[str, Any]:
    raw = read_object(path, _MANIFEST_MAX)
    if raw.keys() != _FACTS.keys() | {"cpus"}:
        raise ValueError("the manifest is not of this version")
    if any(type(raw[name]) is not kind for name, kind in _FACTS.items()) or type(raw["cpus"]) not in (int, float):
        raise ValueError("the manifest is not plausible")
    return raw


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
