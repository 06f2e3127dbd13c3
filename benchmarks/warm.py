"""Creates and starts from a boot template to the first successful command through the API, beside a raw QEMU start of
the same kernel, initrd, disks and memory to the guest agent's first answer. Interleaved.

    STATE=./var .venv/bin/python -m benchmarks.warm [--count 15] [--memory 512]

The instance has PLATFORM_BOOT_TEMPLATES above 0, and PLATFORM_POOL_MEMORY_MB=0: no create is served by the warm pool.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from benchmarks.boot import RawMachine
from benchmarks.common import Instance, show

BAR = "at most 0.65"
TEMPLATE_SECONDS = 180.0


class Machines:
    """Workspaces of one size through the API. Each measured call returns seconds to the end of its first command."""

    def __init__(self, client: httpx.Client, image: str, memory: int, disk: int) -> None:
        self.client = client
        config = {"memory_mb": memory, "disk_size_mb": disk}
        self._body = {"name": "bench", "image": image, "mode": "permanent", "config": config}

    def create(self) -> str:
        answer = self.client.post("/workspace", json=self._body)
        answer.raise_for_status()
        return str(answer.json()["workspace"]["id"])

    def delete(self, workspace_id: str) -> None:
        self.client.delete(f"/workspace/{workspace_id}").raise_for_status()

    def await_template(self) -> None:
        """Create and delete workspaces until one starts from a template."""
        until = time.monotonic() + TEMPLATE_SECONDS
        while time.monotonic() < until:
            made = self.create()
            began = self.client.get(f"/workspace/{made}").json()["workspace"]["started_from"]
            self.delete(made)
            if began == "template":
                return
            time.sleep(5)
        raise SystemExit("no machine starts from a template: is PLATFORM_BOOT_TEMPLATES above 0?")

    def measure_create(self) -> float:
        begun = time.monotonic()
        made = self.create()
        taken = self._to_first_command(made, begun)
        self.delete(made)
        return taken

    def measure_start(self, workspace_id: str) -> float:
        self.client.post(f"/workspace/{workspace_id}/stop").raise_for_status()
        begun = time.monotonic()
        self.client.post(f"/workspace/{workspace_id}/start").raise_for_status()
        return self._to_first_command(workspace_id, begun)

    def _to_first_command(self, workspace_id: str, begun: float) -> float:
        ran = self.client.post(f"/workspace/{workspace_id}/exec", json={"cmd": ["true"]})
        taken = time.monotonic() - begun
        if ran.json().get("exit_code") != 0:
            raise SystemExit(f"the command failed: {ran.text}")
        shown = self.client.get(f"/workspace/{workspace_id}").json()["workspace"]
        if shown["started_from"] != "template":
            raise SystemExit(f"{workspace_id} did not start from a template")
        return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--memory", type=int, default=512, help="MiB")
    parser.add_argument("--disk", type=int, default=512, help="MiB")
    options = parser.parse_args()
    instance = Instance.load()
    folder = Path(tempfile.mkdtemp(prefix="mvmb-"))
    try:
        with instance.client() as client:
            _measure(instance, client, folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(instance: Instance, client: httpx.Client, folder: Path, options: argparse.Namespace) -> None:
    raw_machine = RawMachine(folder, instance, options.memory, options.disk)
    machines = Machines(client, instance.image, options.memory, options.disk)
    machines.await_template()
    kept = machines.create()
    raw, created, started = list[float](), list[float](), list[float]()
    kinds: list[tuple[list[float], Callable[[], float]]] = [
        (raw, raw_machine.run), (created, machines.measure_create), (started, lambda: machines.measure_start(kept)),
    ]  # fmt: skip
    for number in range(options.count):
        for values, measure in kinds:
            values.append(measure())
        print(
            f"  {number + 1:>3}: raw {raw[-1]:.3f} s, create {created[-1]:.3f} s, start {started[-1]:.3f} s", flush=True
        )
    machines.delete(kept)
    for name, values in (("create", created), ("start of a stopped workspace", started)):
        show(f"{name}, template", values, raw, bar=BAR)
        p95 = statistics.quantiles(values, n=20)[-1] / statistics.median(values)
        print(f"  p95 {p95:.2f} medians, at most 1.5")


if __name__ == "__main__":
    main()
