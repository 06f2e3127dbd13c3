"""A thumbnail of a 6000 x 4500 picture by the confined process, beside bare pyvips in a fresh process.

PYTHONPATH=.:platform python -m benchmarks.cdn_thumbnails [--rounds 15]

Both read the same file and write the same format. Ours checks the header first, fails on damage, removes metadata, and
runs as a user of its own without network and files. Rounds alternate, so that what else runs on the host meets both.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyvips

from benchmarks.common import show
from cdn.inspection.messages import InspectionOrder, VariantOrder
from cdn.media.confinement import Level
from cdn.media.inspections import found_level, run_inspection
from cdn.types import VARIANT_FORMATS

WIDTH, HEIGHT, SIDE = 6000, 4500, 400
SUFFIXES = {"jpeg": "jpg", "png": "png", "webp": "webp"}
BAR = 1.3
BARE = f"import sys, pyvips; pyvips.Image.thumbnail(sys.argv[1], {SIDE}, height={SIDE}).write_to_file(sys.argv[2])"


def picture_make(path: Path) -> None:
    """Clouds with some noise: compresses about as a photograph does."""
    clouds = [pyvips.Image.perlin(WIDTH, HEIGHT, cell_size=cells, uchar=True) for cells in (256, 300, 410)]
    noise = pyvips.Image.gaussnoise(WIDTH, HEIGHT, mean=0, sigma=6)
    made = clouds[0].bandjoin(clouds[1:]) + noise
    made.cast("uchar").copy(interpretation="srgb").write_to_file(str(path))


def bare(path: Path, target: Path) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", BARE, str(path), str(target)], check=True)
    return time.monotonic() - began


def confined(path: Path, target: Path, name: str) -> float:
    target.unlink(missing_ok=True)
    order = InspectionOrder(VARIANT_FORMATS[name], variants=(VariantOrder(-1, SIDE, SIDE, "contain", name, None),))
    file = os.open(path, os.O_RDONLY)
    try:
        began = time.monotonic()
        found = run_inspection(file, order, [target], lambda: None)
        seconds = time.monotonic() - began
    finally:
        os.close(file)
    if found.reason or found.variants[0] != (SIDE, SIDE * HEIGHT // WIDTH):
        raise SystemExit(f"the thumbnail was not made: {found}")
    return seconds


def measure(folder: Path, rounds: int) -> bool:
    """Whether all three are within the bar."""
    within = True
    for name, suffix in SUFFIXES.items():
        path, target = folder / f"picture.{suffix}", folder / f"thumbnail.{suffix}"
        picture_make(path)
        bare(path, target)
        confined(path, target, name)
        pairs = [(confined(path, target, name), bare(path, target)) for _ in range(rounds)]
        title = f"{name}, {path.stat().st_size / 1e6:.1f} MB"
        within &= show(title, [ours for ours, _ in pairs], [other for _, other in pairs], bar=f"at most {BAR}") <= BAR
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"  the largest process of either took {largest:.0f} MiB")
    return within


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"thumbnails of {WIDTH} x {HEIGHT}, confined {found_level.level().value}")
    if found_level.level() is not Level.OWN_USER:
        print("  (this host cannot confine as strictly as a host of machines does)")
    with tempfile.TemporaryDirectory() as folder:
        raise SystemExit(not measure(Path(folder), options.rounds))


if __name__ == "__main__":
    main()
