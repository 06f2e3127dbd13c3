"""What the benchmarks share: the measured instance, its API, and how results are shown."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from dotenv import dotenv_values

STATE = Path(os.environ.get("STATE", "var")).resolve()


@dataclass(frozen=True)
class Instance:
    """A running instance, by its credentials file."""

    base_url: str
    image: str
    headers: dict[str, str]

    @classmethod
    def load(cls) -> Instance:
        values = dotenv_values(STATE / "credentials.env")
        if not values.get("BASE_URL"):
            raise SystemExit(f"There is no instance in {STATE}: run `make up` first, or set STATE.")
        headers = {
            "X-Client-ID": values["CLIENT_ID"] or "",
            "X-Client-Secret": values["CLIENT_SECRET"] or "",
            "Content-Type": "application/json",
        }
        return cls(values["BASE_URL"] or "", values["IMAGE"] or "", headers)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.base_url, headers=self.headers, timeout=900)

    @contextmanager
    def workspace(self, memory: int, **config: int) -> Iterator[tuple[httpx.Client, str]]:
        """A running workspace of `memory` MiB, by its id; deleted at the end."""
        body = {"name": "bench", "image": self.image, "config": {"memory_mb": memory, **config}, "mode": "permanent"}
        with self.client() as client:
            made = client.post("/workspace", json=body)
            made.raise_for_status()
            workspace_id = made.json()["workspace"]["id"]
            try:
                yield client, workspace_id
            finally:
                client.delete(f"/workspace/{workspace_id}").raise_for_status()


def show(name: str, ours: Sequence[float], baseline: Sequence[float], *, unit: str = "s", bar: str) -> float:
    """Print medians, ranges and the ratio of medians."""
    for title, values in ((f"{name}", ours), ("baseline", baseline)):
        low, high = min(values), max(values)
        median = statistics.median(values)
        print(f"  {title:<28} median {median:8.3f} {unit}   {low:.3f} to {high:.3f}, n={len(values)}")
    ratio = statistics.median(ours) / statistics.median(baseline)
    print(f"  ratio {ratio:.2f} ({bar})")
    return ratio


def show_must(seen: float, must: float, *, unit: str = "") -> None:
    """Print a bar beside what was seen."""
    print(
        f"  must / seen: at most {must:g}{unit} / {seen:.2f}{unit}: {'met' if seen <= must else 'MISSED'}", flush=True
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
