"""The command lines of rsync's two ends, which each host writes by itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

from vmbackend.transfer.rsync import RECEIVER, SENDER


def test_the_sender_is_what_the_receiver_would_ask_for(tmp_path: Path) -> None:
    """Order does not matter; the letters after `e.` are what this version can, of which 3.2 has those here."""
    asked = tmp_path / "asked"
    relay = tmp_path / "relay"
    relay.write_text(f'#!/bin/sh\nshift; printf "%s\\n" "$@" >{asked}\n')
    relay.chmod(0o755)
    command = [word for word in RECEIVER if not word.startswith("--rsh=")]
    command[-1] = str(tmp_path)
    subprocess.run([*command, f"--rsh={relay}"], capture_output=True, check=False, timeout=60)
    wanted = asked.read_text().splitlines()
    letters = [word for word in (*wanted, *SENDER) if word.startswith("-") and not word.startswith("--")]
    assert sorted(set(wanted) - set(letters)) == sorted(set(SENDER) - set(letters))
    theirs, ours = (word.partition("e.") for word in letters)
    assert sorted(ours[0]) == sorted(theirs[0])
    assert set(ours[2]) <= set(theirs[2])
