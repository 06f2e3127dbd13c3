"""The package as it is installed: a wheel in a fresh environment, with and without its extras."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "clients/python"


NEEDED = ("httpx", "httpcore", "h11", "anyio", "idna", "certifi", "sniffio", "typing_extensions.py")
SITE = Path(sysconfig.get_paths()["purelib"])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the tools of this environment: nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    # As it is tracked: without the synchronous client.
    source = folder / "python"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (source / "src/microvm/sync").rglob("*.py"):
        if path.name not in ("__init__.py", "waiting.py"):
            path.unlink()
    words = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(words, check=True, capture_output=True, text=True)
    (found,) = folder.glob("microvm-*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the wheel alone; httpx comes from this one only where a test says so."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    words = ["-m", "pip", "--python", str(folder / "bin/python"), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True)
    return folder / "bin/python"


def test_the_wheel_has_the_client_the_commands_and_the_server(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "microvm/py.typed",
        "microvm/cli/entry.py",
        "microvm/mcp_server/server.py",
    } <= names
    asynchronous = {name for name in names if name.startswith("microvm/aio/")}
    assert {name.replace("/aio/", "/sync/") for name in asynchronous} <= names
    (metadata,) = (name for name in names if name.endswith("METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "Provides-Extra: cli" in text
    assert "Provides-Extra: mcp" in text


def test_without_the_extra_ws_says_how_to_install_it(python: Path, tmp_path: Path) -> None:
    for name in NEEDED:
        if (SITE / name).exists():
            (tmp_path / name).symlink_to(SITE / name)
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    words = [python.with_name("ws"), "--help"]
    found = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stdout == ""
    assert "pip install 'microvm[cli]'" in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_with_the_extra_ws_helps(python: Path) -> None:
    """The extra's packages are those of this environment."""
    environment = {"PYTHONPATH": str(SITE), "PATH": "/usr/bin:/bin"}
    found = subprocess.run(
        [python.with_name("ws"), "--help"], env=environment, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert "terminal" in found.stdout


def test_without_the_second_extra_mcp_says_how_to_install_it(python: Path, tmp_path: Path) -> None:
    for entry in SITE.iterdir():
        if not entry.name.startswith(("mcp", "microvm", "_")) and entry.suffix != ".pth":
            (tmp_path / entry.name).symlink_to(entry)
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "MICROVM_CONFIG_DIR": str(tmp_path / "config")}
    found = subprocess.run(
        [python.with_name("ws"), "mcp"], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert "pip install 'microvm[mcp]'" in found.stderr
