"""docs/tutorial.md, block by block, on the instance that the tests share."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from supervise.files import read_env_file
from supervise.instance import ROOT
from tests.vm.images import BUSYBOX
from tests.vm.instances import TestInstance

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]

TUTORIAL = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Of the checkout's own instance, and of a registry.
LOGIN = ". var/credentials.env\nIMAGE=docker.io/library/busybox:latest\n"


def test_the_tutorial_does_what_it_says(instance: TestInstance, tmp_path: Path) -> None:
    blocks = BLOCK.findall(TUTORIAL.read_text())
    shell = [text for kind, text in blocks if kind == "sh"]
    assert shell[0].startswith(LOGIN)
    known = {**read_env_file(instance.instance.credentials_file), "IMAGE": BUSYBOX}
    environment = {**os.environ, **known, "PYTHONPATH": str(ROOT / "clients" / "python" / "src"), "no_proxy": "*"}
    before: list[str] = []
    output = ""
    for kind, text in blocks:
        if kind == "text":
            assert_has(output, text)
            continue
        command = [sys.executable, "-c", text]
        if kind == "sh":
            # Functions and variables of the blocks before, without what these did.
            command = ["sh", "-euc", "".join(before) + text.removeprefix(LOGIN)]
            before += re.findall(r"^api\(\) \{.*?^\}\n", text, re.MULTILINE | re.DOTALL)
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        output = done.stdout
        assert done.returncode == 0, f"{text}\n{output}\n{done.stderr}"


def assert_has(output: str, expected: str) -> None:
    """The lines in this order, wherever each begins; `...` stands for anything."""
    pattern = ".*".join(re.escape(part) for line in expected.splitlines() for part in line.split("..."))
    assert re.search(pattern, re.sub(r"(?<=[:,]) ", "", output), re.DOTALL), f"{expected}\n---\n{output}"
