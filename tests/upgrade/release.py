"""The checkout of an earlier commit, with an environment that fits its lock, and its commands on an instance."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from supervise.instance import ROOT
from supervise.orphans import ROLE, STATE, environment_of

COMMAND_SECONDS = 1800.0
_PIN = re.compile(r"([A-Za-z0-9][\w.-]*)==(\S+)")
_GUEST = ("vmbackend/guest/src", "vmbackend/guest/kit.py")


class Release:
    """The checkout in `root`; `python` is that of its environment."""

    def __init__(self, root: Path, python: Path) -> None:
        self.root, self.python = root, python

    def command(self, name: str, *arguments: str, settings: Mapping[str, str]) -> str:
        """`make NAME` of the checkout without the installation of packages; what it printed.

        Raises AssertionError with the output where it fails. `settings`: STATE, PORT and PLATFORM variables.
        """
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("PLATFORM_")}
        path = f"{self.root}:{self.root / 'platform'}"
        done = subprocess.run(
            [str(self.python), "-m", "supervise", name, *arguments],
            env={**inherited, **settings, "PYTHONPATH": path},
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{name} {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def assert_runs(self, state: Path) -> None:
        """Every supervised process of the instance in this state folder has the checkout's code."""
        found = [environment_of(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        paths = {values["PYTHONPATH"] for values in found if ROLE in values and values.get(STATE) == str(state)}
        assert paths == {f"{self.root}:{self.root / 'platform'}"}, paths


def commit_of(reference: str) -> str:
    """The commit that a name of git stands for. Raises ValueError: there is none, or no history of git."""
    done = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    if done.returncode != 0:
        raise ValueError(f"There is no commit {reference!r} in the git history of {ROOT}.")
    return done.stdout.strip()


def has_same_guest_kit(commit: str) -> bool:
    """Whether the guest kit's sources of the commit are those of this checkout."""
    return _git("diff", "--quiet", commit, "--", *_GUEST).returncode == 0


def made_release(commit: str, folder: Path) -> Release:
    """The commit's files in `folder`, which must not exist, with an environment: the present one where it has all
    packages of the commit's lock, else one of its own, which takes minutes.
    """
    archive = folder.with_suffix(".tar")
    subprocess.run(["git", "archive", "--output", str(archive), commit], cwd=ROOT, check=True)
    folder.mkdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)
    archive.unlink()
    if has_packages((folder / "requirements.lock").read_text()):
        return Release(folder, Path(sys.executable))
    subprocess.run(["scripts/venv.sh", "run"], cwd=folder, check=True)
    return Release(folder, folder / ".venv/bin/python")


def has_packages(lock: str) -> bool:
    """Whether the present environment has every package of a lock file in its version."""
    present = {_normalized(each.metadata["Name"]): each.version for each in metadata.distributions()}
    pins = (found.groups() for line in lock.splitlines() if (found := _PIN.match(line)))
    return all(present.get(_normalized(name)) == version for name, version in pins)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
