"""Pages by the edge as configured, beside nginx with the same files, headers and cores; the edge with 10,000 sites
beside one with a single site; and the time from a switch to the first answer of the new release.

    .venv/bin/python -m benchmarks.pages [--rounds 5] [--seconds 4] [--connections 16] [--sites 10000]

Sides take turns. CPU time is that of the server alone. Needs no instance; `benchmarks.page_deploys` measures deploys.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.common import show
from benchmarks.page_servers import Server, edge, nginx
from benchmarks.page_sites import DOMAIN, LARGE, SLUG, SMALL, site_make, sites_copy, store_of
from supervise.instance import load_instance
from tests.free_ports import free_port

CASES = (
    ("small file", SMALL, "identity"),
    ("20 kB", LARGE, "identity"),
    ("20 kB, brotli", LARGE, "br"),
    ("20 kB, gzip", LARGE, "gzip"),
)
# What may differ: names of servers, tags, which each makes in its own way, and nginx has no ranges of compressed files.
_OWN_HEADERS = {"server", "date", "etag", "connection", "keep-alive", "accept-ranges", "x-request-id"}
MEMORY_BAR_MIB = 8
SWITCH_BAR_MS = 100
_EACH_SITE = """
local number = {first} - 1
request = function()
  number = (number + 1) % {count}
  return wrk.format("GET", "{path}", {{["Host"] = "{slug}-" .. number .. ".{domain}"}})
end
"""


def check_alike(servers: list[Server]) -> None:
    """Both send the same bodies and headers. Ends the benchmark where they do not."""
    for title, path, encoding in CASES:
        found = [server.get(SLUG, path, Accept_Encoding=encoding) for server in servers]
        heads = [{key: value for key, value in each.headers.items() if key not in _OWN_HEADERS} for each in found]
        types = [head.pop("content-type").partition(";")[0].replace("application/", "text/") for head in heads]
        if found[0].content != found[1].content or heads[0] != heads[1] or types[0] != types[1]:
            raise SystemExit(f"{title}: {heads} {types} differ, or bodies do")


def compare(servers: list[Server], options: argparse.Namespace) -> None:
    """Rates and CPU time of each case, in turns."""
    for title, path, encoding in CASES:
        rates: list[list[float]] = [[], []]
        costs: list[list[float]] = [[], []]
        for number in range(options.rounds):
            for place, server in enumerate(servers):
                rate, cost = server.load(SLUG, path, options.seconds, options.connections, encoding)
                rates[place].append(rate)
                costs[place].append(cost)
            print(
                f"  {number + 1:>3}: "
                + "  ".join(
                    f"{server.name} {rates[place][-1]:8.0f} req/s {costs[place][-1]:6.1f} us"
                    for place, server in enumerate(servers)
                ),
                flush=True,
            )
        show(f"{title}, edge", *rates, unit="req/s", bar=f"of {servers[1].name}'s rate; at least 0.5")
        show(f"{title}, CPU time", *costs, unit="us", bar="CPU time of a request; it has no bar")


def ask_each(server: Server, folder: Path, count: int, seconds: int) -> None:
    """Every site is asked for, so that the server holds of each what it holds."""
    script = folder / "each.lua"
    script.write_text(_EACH_SITE.format(first=0, count=count, path=SMALL, slug=SLUG, domain=DOMAIN))
    url = f"http://127.0.0.1:{server.port}"
    command = ["wrk", "-t1", "-c16", f"-d{seconds}s", "-s", str(script), url]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in out:
        raise SystemExit(f"{server.name} answered errors:\n{out}")


def many_sites(one: Server, many: Server, folder: Path, options: argparse.Namespace) -> None:
    """The rate of one site and the memory, with 1 site and with many."""
    rates: list[list[float]] = [[], []]
    for number in range(options.rounds):
        ask_each(many, folder, options.sites, options.seconds)
        one.load(SLUG, SMALL, options.seconds, 16, "identity")
        for place, server in enumerate((many, one)):
            rates[place].append(server.load(SLUG, SMALL, options.seconds, options.connections, "identity")[0])
        print(
            f"  {number + 1:>3}: {options.sites} sites {rates[0][-1]:8.0f} req/s {many.memory_mib():6.1f} MiB"
            f"  1 site {rates[1][-1]:8.0f} req/s {one.memory_mib():6.1f} MiB",
            flush=True,
        )
    show(f"one of {options.sites} sites", *rates, unit="req/s", bar="of the rate with a single site; at least 0.9")
    more = many.memory_mib() - one.memory_mib()
    print(f"  memory with {options.sites} sites: {more:+.1f} MiB (within {MEMORY_BAR_MIB})")


def switch(server: Server, state: Path, count: int) -> None:
    """From the call that makes a release live to the end of the first answer of it."""
    store = store_of(state)
    for number in (1, 2):
        site_make(store, "switch", number, f"release {number}".encode())
    times = []
    for number in range(count):
        wanted = f"release {1 + number % 2}"
        begun = time.monotonic()
        store.release_publish("switch", 1 + number % 2)
        while server.get("switch", "/").text != wanted:
            pass
        times.append((time.monotonic() - begun) * 1000)
    print(f"  switch to the first new answer: worst {max(times):.1f} ms, n={count} (below {SWITCH_BAR_MS})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--sites", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mvb-") as name, ExitStack() as stack:
        folder = Path(name)
        instances = [load_instance(folder / part, free_port()) for part in ("a", "b")]
        for instance in instances:
            site_make(store_of(instance.state))
        one = stack.enter_context(edge(instances[0]))
        beside = stack.enter_context(nginx(folder, instances[0].state / "pages/by-slug" / DOMAIN, cores=1))
        check_alike([one, beside])
        compare([one, beside], options)
        sites_copy(store_of(instances[1].state), options.sites)
        many = stack.enter_context(edge(instances[1]))
        many_sites(one, many, folder, options)
        switch(one, instances[0].state, 30)


if __name__ == "__main__":
    main()
