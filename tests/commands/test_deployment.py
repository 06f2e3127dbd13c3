"""What a production host is given: the systemd unit, and settings that Django's own deployment checks accept."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.ROOT)
UNITS = ROOT / "deploy" / "systemd"
UNIT = UNITS / "microvm-workspaces.service"
BACKUP = UNITS / "microvm-backup.service"
CHECKOUT = "/opt/microvm-workspaces"


def values(name: str, unit: Path = UNIT) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


def test_the_unit_starts_what_make_run_starts() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "SUPERVISE := PYTHONPATH=.:platform $(PYTHON) -m supervise\n" in makefile
    assert values("Environment")[0] == "PYTHONPATH=.:platform"
    assert values("ExecStart") == [f"{CHECKOUT}/.venv/bin/python -m supervise run"]
    assert values("WorkingDirectory") == [CHECKOUT]


def test_a_stop_of_the_unit_does_not_end_machines() -> None:
    assert values("KillMode") == ["process"]
    assert values("Delegate") == ["yes"]


def test_the_backup_unit_copies_the_instance_of_the_other_unit() -> None:
    (command,) = values("ExecStart", BACKUP)
    state = values("Environment")[1].removeprefix("PLATFORM_STATE=")
    assert command == f"/usr/bin/make backup STATE={state} TO=/srv/backups"
    assert values("WorkingDirectory", BACKUP) == values("WorkingDirectory")
    recipe = r'^backup: .*\n\t@\$\(SUPERVISE\) backup "\$\(TO\)"$'
    assert re.search(recipe, (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    for unit in UNITS.iterdir():
        # systemd looks whether the program and the folder are there.
        (tmp_path / unit.name).write_text(unit.read_text().replace(CHECKOUT, str(ROOT)))
    copies = sorted(map(str, tmp_path.iterdir()))
    assert len(copies) == 3
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *copies], capture_output=True, text=True, check=False
    )
    about = [line for line in done.stderr.splitlines() if "microvm-" in line]
    assert about == []


def test_the_deployment_checks_of_django_have_no_warning(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PLATFORM_")}
    env |= {
        "PLATFORM_STATE": str(tmp_path),
        "PLATFORM_BASE_URL": "https://vm.example.org",
        "PLATFORM_SECRET_KEY": "of-the-test-AbCdEfGhIjKlMnOpQrStUvWxYz-0123456789-#%&/()=?+",
    }
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
