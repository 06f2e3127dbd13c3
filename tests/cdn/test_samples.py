"""Samples of others, of every format: those of Pillow's and puremagic's source distributions. None is stored here."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdn.inspection.formats import is_inspectable
from cdn.inspection.messages import PIXELS_MAX, InspectionOrder, VariantOrder
from cdn.media.inspections import run_inspection
from cdn.sniffing import file_sniff
from cdn.types import TYPES
from tests.run_extent import WHOLE

pytestmark = pytest.mark.skipif(not WHOLE, reason="takes minutes and a package index: TEST_ALL=1")
PACKAGES = {"pillow": "Tests/images", "puremagic": "test/resources"}
VARIANT = VariantOrder(-1, 32, 32, "contain", "webp", None)
REASONS = {"", "damaged", "unsupported", "pixels", "frames"}


def samples(package: str, folder: Path) -> Iterator[Path]:
    """The files of its source distribution, unpacked."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
    command += ["--quiet", "--disable-pip-version-check", "-d", str(folder), package]
    if subprocess.run(command, capture_output=True, timeout=600, check=False).returncode:
        pytest.skip(f"no package index has the source of {package}")
    (archive,) = folder.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(folder), "--no-same-owner"], check=True)
    yield from sorted(path for path in folder.glob(f"*/{PACKAGES[package]}/**/*") if path.is_file())


@pytest.mark.parametrize("package", PACKAGES)
def test_every_sample_is_looked_at_within_the_limits(package: str, tmp_path: Path) -> None:
    found: Counter[tuple[str, str]] = Counter()
    (tmp_path / "source").mkdir()
    for path in samples(package, tmp_path / "source"):
        with path.open("rb") as file:
            content_type = file_sniff(file).content_type
            assert content_type in TYPES
            if not is_inspectable(content_type):
                continue
            variants = (VARIANT,) if content_type.startswith("image/") else ()
            output = tmp_path / "variant"
            output.unlink(missing_ok=True)
            order = InspectionOrder(content_type, to_the_end=True, variants=variants)
            answer = run_inspection(file.fileno(), order, [output] if variants else [], lambda: None)
        found[content_type, answer.reason] += 1
        assert answer.reason in REASONS, path
        if not answer.reason and variants:
            assert (answer.width or 0) * (answer.height or 0) <= PIXELS_MAX
            assert output.stat().st_size > 0
    assert sum(found.values()) > 10, found
