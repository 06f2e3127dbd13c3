"""The guests' resolvers: dnsmasq on the bridge's address, in processes that outlive this one.

Guests with `allow_internet` share one, on port 53, which forwards to the host's resolvers. A machine whose policy
allows only some names has its own, on a port to which the firewall redirects its queries: it forwards queries for
these names only, adds the addresses of the answers to the machine's sets (`firewall.py`), and answers NXDOMAIN
otherwise. One per machine, because dnsmasq does not distinguish clients: with a common one, a guest could exfiltrate
data in queries for a domain that another machine's policy allows.

Guests' queries and strangers' answers are hostile input: each process is Debian's user `dnsmasq`, sees /usr and its own
folder only, and has bounded memory. The common one keeps no capability; one with names keeps CAP_NET_ADMIN, without
which it could not add to the firewall's sets.

Used behaviour of dnsmasq: `server=/a.b/` matches the name and all names below it, and the longer `address=/*.a.b/`
excludes those below it; `/*.a.b/` matches only those below; nothing is cached, because only upstream answers are added
to the sets; without a cache `max-ttl` still limits the time to live of answers.
"""

from __future__ import annotations

import logging
import os
import re
import select
import signal
import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.disks import write_atomically
from vmbackend.libvirt.process import run_tool
from vmbackend.tool_confinement import confined_service

log = logging.getLogger(__name__)

PROGRAM = "dnsmasq"
DNS_PORT = 53
_CONF = "--conf-file="
_END_SECONDS = 2.0
_TRIES = 3
_USER = "dnsmasq"
_CAPABILITIES = ("setuid", "setgid", "net_bind_service")  # dnsmasq drops them once it listens
_MEMORY_BYTES = 128 << 20
# Queries that wait for an answer: of a dozen guests at the firewall's limit for each.
_MAX_QUERIES = 10_000
_MAX_CONNECTIONS = 100
_RESOLV_CONF = Path("/etc/resolv.conf")


class Resolver:
    """One dnsmasq; `folder` has its files and nothing else, as it sees the folder."""

    def __init__(self, folder: Path) -> None:
        self.conf = folder / "resolver.conf"
        self._pid_file = folder / "resolver.pid"

    def start_shared(self, address: str, servers: Sequence[str]) -> None:
        """Run the guests' common resolver, restarted if its configuration changed. Raise BackendUnavailable."""
        # Not dnsmasq's `resolv-file`: its folder would have to be visible. Called again at least every minute.
        upstream = [f"server={server}" for server in servers or host_servers()]
        lines = [*self._common(address, DNS_PORT), *upstream, "cache-size=1000", "domain-needed", "bogus-priv"]
        lines += ["no-resolv", f"dns-forward-max={_MAX_QUERIES}", f"max-tcp-connections={_MAX_CONNECTIONS}"]
        self._apply_config("\n".join(lines) + "\n", _CAPABILITIES)

    def start_for_names(self, address: str, names: Sequence[str], sets: Sequence[str], max_ttl: int) -> int:
        """Run a resolver for these names that adds answers to `sets` ("inet#TABLE#SET"); return its port.

        One that runs with the same configuration is kept. Raise BackendUnavailable; none runs then.
        """
        for tries_left in reversed(range(_TRIES)):
            port = self._port() or _free_port(address)
            try:
                conf = self._named_conf(address, port, names, sets, max_ttl)
                self._apply_config(conf, (*_CAPABILITIES, "net_admin"))
                return port
            except BackendUnavailable:  # most likely the port was taken since
                self.stop()
                self.conf.unlink(missing_ok=True)
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def is_running(self) -> bool:
        """Return whether its process runs."""
        return self._process() is not None

    def stop(self) -> None:
        """Stop its process. Idempotent."""
        pid = self._process()
        if pid is not None:
            _end(pid, self.conf)

    def _named_conf(self, address: str, port: int, names: Sequence[str], sets: Sequence[str], max_ttl: int) -> str:
        lines = [*self._common(address, port), "no-resolv", "cache-size=0", f"max-ttl={max_ttl}", "address=/#/"]
        into = ",".join(f"4#{name}" for name in sets)
        for name in names:
            lines += [f"server=/{name}/{address}", f"nftset=/{name.removeprefix('*.')}/{into}"]
            if not any(f".{name}".endswith(wide.removeprefix("*")) for wide in names if wide.startswith("*.")):
                lines.append(f"address=/*.{name}/")
        return "\n".join(lines) + "\n"

    def _common(self, address: str, port: int) -> list[str]:
        return [
            *(f"user={_USER}", "group=nogroup", "no-hosts", "bind-interfaces", "except-interface=lo", "filter-AAAA"),
            *(f"port={port}", f"listen-address={address}", f"pid-file={self._pid_file}"),
        ]

    def _apply_config(self, text: str, capabilities: Sequence[str]) -> None:
        if self._text() == text and self.is_running():
            return
        # In this order: a running process must never have an older configuration than the file.
        self.stop()
        self.conf.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self.conf, text.encode())
        command = [PROGRAM, f"{_CONF}{self.conf}"]
        run_tool(confined_service(command, self.conf.parent, capabilities, memory_bytes=_MEMORY_BYTES))

    def _text(self) -> str:
        try:
            return self.conf.read_text()
        except OSError:
            return ""

    def _port(self) -> int:
        found = re.search(r"^port=(\d+)$", self._text(), re.MULTILINE)
        return int(found[1]) if found and self.is_running() else 0

    def _process(self) -> int | None:
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None
        return pid if _conf_of(pid) == str(self.conf) else None


def host_servers() -> list[str]:
    """Return the servers that this host itself asks."""
    try:
        text = _RESOLV_CONF.read_text(errors="replace")
    except OSError:
        return []
    return re.findall(r"^\s*nameserver\s+([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\s*(?:[#;].*)?$", text, re.MULTILINE)


def stop_other_resolvers(folder: Path, keep: Collection[Path]) -> None:
    """Stop every resolver with files below `folder`, except those with a configuration in `keep`."""
    for pid, conf in _running(folder):
        if conf not in keep:
            _end(pid, conf)


def _running(folder: Path) -> Iterator[tuple[int, Path]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (conf := _conf_of(int(entry.name))).startswith(f"{folder}/"):
            yield int(entry.name), Path(conf)


def _conf_of(pid: int) -> str:
    """Return the configuration file of a dnsmasq process; empty for other programs."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    if len(arguments) < 2 or arguments[0] != PROGRAM.encode():
        return ""
    return os.fsdecode(arguments[1]).removeprefix(_CONF)


def _end(pid: int, conf: Path) -> None:
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            # The pidfd is opened before this check: a reused pid is never signalled.
            for sign in (signal.SIGTERM, signal.SIGKILL):
                if _conf_of(pid) != str(conf):
                    return
                signal.pidfd_send_signal(process, sign)
                if select.select([process], [], [], _END_SECONDS)[0]:
                    return
        finally:
            os.close(process)


def _free_port(address: str) -> int:
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.bind((address, 0))
        port: int = tcp.getsockname()[1]
        with suppress(OSError):  # taken for UDP: dnsmasq does not start, and another port is tried
            udp.bind((address, port))
        return port
