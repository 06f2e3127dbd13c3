"""Network policies by traffic: namespaces stand for guests behind the real bridge, firewall and resolvers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.vm.client import until
from tests.vm.outside import OTHER_PORT, PORT, Outside, outside
from vmbackend.libvirt import sockets
from vmbackend.libvirt.firewall import Port, mac_for
from vmbackend.libvirt.names import NamesKeeper
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.record import MachineDir, Record, machine_dirs
from vmbackend.libvirt.resolver import Resolver, _running
from vmbackend.policy import NetworkPolicy

pytest.importorskip("libvirt")
from .libvirt_factory import free_subnet

pytestmark = pytest.mark.host
INSTANCE = "fe0005"
NXDOMAIN, NOTHING = "nxdomain", "nothing"

# One attempt each second or so: what is let through answers at once.
CONNECT = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1.5) as c:
        print(c.recv(64).decode())
except OSError:
    print("nothing")
"""
RESOLVE = """
import socket, sys
name, server = sys.argv[1:]
asked = b"\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0"
for label in name.split("."):
    asked += bytes([len(label)]) + label.encode()
with socket.socket(type=socket.SOCK_DGRAM) as s:
    s.settimeout(3)
    s.connect((server, 53))
    try:
        s.send(asked + b"\\0\\0\\1\\0\\1")
        got = s.recv(512)
    except ConnectionRefusedError:
        sys.exit(print("refused"))
    except OSError:
        sys.exit(print("nothing"))
if got[3] & 15 == 3:
    print("nxdomain")
elif got[7]:
    print(socket.inet_ntoa(got[-4:]), int.from_bytes(got[-10:-6], "big"))
else:
    print("rcode", got[3] & 15)
"""


@dataclass(frozen=True)
class Guest:
    """A namespace with one interface, as a machine has it."""

    ip: str
    gateway: str
    pid: int

    def run(self, code: str, *arguments: object) -> str:
        command = ["nsenter", "-t", str(self.pid), "-n", sys.executable, "-c", textwrap.dedent(code)]
        return subprocess.run(
            [*command, *map(str, arguments)], capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()

    def reaches(self, address: str, port: int = PORT) -> bool:
        return self.run(CONNECT, address, port) != NOTHING

    def resolve(self, name: str) -> str:
        """The address, or why there is none."""
        return self.run(RESOLVE, name, self.gateway).split()[0]


@contextmanager
def namespace() -> Iterator[int]:
    """A process with a network of its own."""
    sleeper = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--", "sleep", "600"])
    try:
        until(lambda: _links(sleeper.pid) == ["lo"], 10, "the namespace is there")
        yield sleeper.pid
    finally:
        sleeper.kill()
        sleeper.wait()


def _links(pid: int) -> list[str]:
    shown = subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "-j", "link"], capture_output=True, check=False)
    return [link["ifname"] for link in json.loads(shown.stdout)] if shown.returncode == 0 else []


@pytest.fixture(scope="module")
def world() -> Iterator[Outside]:
    with outside(INSTANCE) as made:
        yield made


@pytest.fixture
def network(tmp_path: Path, world: Outside) -> Iterator[Network]:
    subnet = free_subnet()
    settings = SimpleNamespace(
        instance=INSTANCE,
        subnet=subnet,
        gateway=str(subnet.network_address + 1),
        dns=(world.address,),
        allowed_private=(),
        machines_dir=tmp_path / "machines",
    )
    made = Network(settings)  # type: ignore[arg-type]
    try:
        made.install([])
        yield made
    finally:
        made.uninstall()


@pytest.fixture
def new_guest(network: Network) -> Iterator[Callable[[int], Guest]]:
    """A guest with the subnet's n-th address; its machine is called m<n>."""
    with namespaces() as enter:

        def make(number: int) -> Guest:
            settings = network._settings
            ip = str(settings.subnet.network_address + number)
            MachineDir(settings.machines_dir, f"m{number}").make()
            guest = Guest(ip, settings.gateway, enter())
            tap, inside = network.tap_for(ip), f"{INSTANCE}i{number}"
            into = ("nsenter", "-t", str(guest.pid), "-n", "ip")
            for command in (
                ("ip", "link", "add", tap, "type", "veth", "peer", "name", inside),
                ("ip", "link", "set", tap, "master", network.bridge, "up"),
                ("bridge", "link", "set", "dev", tap, "isolated", "on"),
                ("ip", "link", "set", inside, "netns", str(guest.pid)),
                (*into, "link", "set", inside, "address", mac_for(ip), "up"),
                (*into, "link", "set", "lo", "up"),
                (*into, "address", "add", f"{ip}/{settings.subnet.prefixlen}", "dev", inside),
                (*into, "route", "add", "default", "via", settings.gateway),
            ):
                subprocess.run(command, check=True)
            return guest

        yield make


@contextmanager
def namespaces() -> Iterator[Callable[[], int]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(namespace())


@pytest.fixture
def guest(new_guest: Callable[[int], Guest]) -> Guest:
    return new_guest(5)


def give(network: Network, guest: Guest, *, generation: int = 1, before: int | None = None, **policy: object) -> Port:
    port = Port("m5", guest.ip, NetworkPolicy(**policy), generation)  # type: ignore[arg-type]
    former = Port("m5", guest.ip, port.policy, before) if before else None
    network.admit(port, former)
    return port


def test_the_internet_is_open_and_shut_at_once(network: Network, guest: Guest, world: Outside) -> None:
    give(network, guest)
    assert guest.run(CONNECT, world.address, PORT) == world.host
    assert guest.resolve("www.example.com") == world.address
    give(network, guest, allow_internet=False)
    assert not guest.reaches(world.address)
    assert guest.resolve("www.example.com") == "refused"


def test_without_the_internet_only_listed_networks_are_reached(network: Network, guest: Guest, world: Outside) -> None:
    give(network, guest, allow_internet=False, egress=(f"{world.second}/32", "2001:db8::/32"))
    assert guest.reaches(world.second)
    assert not guest.reaches(world.address)


def test_overlapping_networks_are_no_trouble(network: Network, guest: Guest, world: Outside) -> None:
    give(network, guest, allow_internet=False, egress=("198.51.100.0/24", f"{world.second}/32", "198.51.0.0/16"))
    assert guest.reaches(world.second)


def test_only_listed_ports_are_reached_with_and_without_the_internet(
    network: Network, guest: Guest, world: Outside
) -> None:
    for policy in ({}, {"allow_internet": False, "egress": (f"{world.address}/32",)}):
        give(network, guest, **policy, egress_ports=(OTHER_PORT,))  # type: ignore[arg-type]
        assert guest.reaches(world.address, OTHER_PORT)
        assert not guest.reaches(world.address, PORT)
    give(network, guest, egress_ports=(OTHER_PORT,))
    assert guest.resolve("www.example.com") == world.address


def test_a_listed_name_is_reached_after_it_was_asked_for(network: Network, guest: Guest, world: Outside) -> None:
    give(network, guest, allow_internet=False, egress=("api.example.com",))
    assert not guest.reaches(world.address)
    assert guest.resolve("api.example.com") == world.address
    assert guest.reaches(world.address)
    assert not guest.reaches(world.second)


@pytest.mark.parametrize(
    ("egress", "resolved", "refused"),
    [
        (("example.com",), ["example.com"], ["www.example.com", "example.org", "example.com.evil.test"]),
        (("*.example.com",), ["www.example.com", "a.b.example.com"], ["example.com", "notexample.com"]),
        (("example.com", "*.example.com"), ["example.com", "www.example.com"], ["com"]),
        (("example.com", "a.example.com"), ["example.com", "a.example.com"], ["b.example.com", "x.a.example.com"]),
        (("example.com", "*.a.example.com"), ["example.com", "x.a.example.com"], ["b.example.com", "a.example.com"]),
        (("*.example.com", "a.example.com"), ["b.example.com", "a.example.com", "x.a.example.com"], ["example.com"]),
    ],
)
def test_names_mean_what_they_say(
    network: Network, guest: Guest, world: Outside, egress: tuple[str, ...], resolved: list[str], refused: list[str]
) -> None:
    give(network, guest, allow_internet=False, egress=egress)
    assert {name: guest.resolve(name) for name in resolved} == dict.fromkeys(resolved, world.address)
    assert {name: guest.resolve(name) for name in refused} == dict.fromkeys(refused, NXDOMAIN)


def test_a_name_of_one_machine_is_none_of_another(
    network: Network, new_guest: Callable[[int], Guest], world: Outside
) -> None:
    one, two = new_guest(5), new_guest(6)
    give(network, one, allow_internet=False, egress=("one.test",))
    network.admit(Port("m6", two.ip, NetworkPolicy(allow_internet=False, egress=("two.test",))))
    assert one.resolve("one.test") == two.resolve("two.test") == world.address
    assert one.resolve("two.test") == two.resolve("one.test") == NXDOMAIN
    network.forget_old_names(two.ip, 0)
    network.forget_old_names(two.ip, 1)
    assert one.reaches(world.address)
    assert not two.reaches(world.address)


@pytest.mark.parametrize("of", ["host", "gateway", "other"])
def test_a_name_that_points_inside_opens_nothing(network: Network, new_guest: Callable[[int], Guest], of: str) -> None:
    guest, other = new_guest(5), new_guest(6)
    network.admit(Port("m6", other.ip, NetworkPolicy()))
    give(network, guest, allow_internet=False, egress=("*.rebind.test",))
    host = next(iter(_addresses_of_host()))
    address = {"host": host, "gateway": guest.gateway, "other": other.ip}[of]
    with listening() as port:
        socket.create_connection((guest.gateway, port), timeout=2).close()
        answer = guest.resolve(f"ip-{address.replace('.', '-')}.rebind.test")
        assert answer == address
        assert not guest.reaches(address, port)


def _addresses_of_host() -> list[str]:
    shown = subprocess.run(["ip", "-j", "-4", "address"], capture_output=True, text=True, check=True).stdout
    return [a["local"] for link in json.loads(shown) if link["ifname"] != "lo" for a in link["addr_info"]]


@contextmanager
def listening() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen(8)
        yield listener.getsockname()[1]


def test_a_name_is_let_through_as_long_as_its_answer_may_be_used(
    network: Network, guest: Guest, world: Outside
) -> None:
    """However the turns fall: an address that was answered in this turn outlives its end, and ends with the next."""
    give(network, guest, allow_internet=False, egress=("api.example.com",))
    seconds = int(guest.run(RESOLVE, "api.example.com", guest.gateway).split()[1])
    assert 0 < seconds <= 60
    network.forget_old_names(guest.ip, 0)
    assert guest.resolve("api.example.com") == world.address
    network.forget_old_names(guest.ip, 1)
    assert guest.reaches(world.address)
    network.forget_old_names(guest.ip, 2)
    assert not guest.reaches(world.address)


STAY = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3) as c:
    print("open", flush=True)
    for line in sys.stdin:
        c.sendall(b"x")
        try:
            print(c.recv(1).decode() or "closed", flush=True)
        except OSError as error:
            print("cut", flush=True)
"""
ECHO_PORT = 7077


@pytest.fixture
def echo(world: Outside) -> Iterator[None]:
    """An echo of single bytes, outside."""
    code = f"""
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while got := self.request.recv(1):
            self.request.sendall(got)
socketserver.ThreadingTCPServer(("0.0.0.0", {ECHO_PORT}), Echo).serve_forever()
"""
    enter = ("nsenter", "-t", str(world.pid), "-n")
    server = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *enter, sys.executable, "-c", code])
    try:
        until(lambda: _connects(world.address, ECHO_PORT), 10, "the echo answers")
        yield
    finally:
        server.kill()
        server.wait()


def _connects(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def open_connection(guest: Guest, address: str) -> Iterator[Callable[[], str]]:
    """A connection from a guest; each call sends a byte and says what came back."""
    process = subprocess.Popen(
        ["nsenter", "-t", str(guest.pid), "-n", sys.executable, "-c", STAY, address, str(ECHO_PORT)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"

        def ask() -> str:
            process.stdin.write("go\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            return process.stdout.readline().strip()  # type: ignore[union-attr]

        yield ask
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_a_connection_outlives_its_record_and_a_restart_and_ends_with_the_policy(
    network: Network, guest: Guest, world: Outside, echo: None
) -> None:
    port = give(network, guest, allow_internet=False, egress=("api.example.com",))
    guest.resolve("api.example.com")
    with open_connection(guest, world.address) as ask:
        assert ask() == "x"
        for turn in (0, 1):
            network.forget_old_names(guest.ip, turn)
        assert ask() == "x"
        network.install([port])
        assert ask() == "x"
        more = give(network, guest, before=1, allow_internet=False, egress=("api.example.com", "www.example.com"))
        assert ask() == "x"
        give(network, guest, generation=2, before=more.generation, allow_internet=False, egress=("www.example.com",))
        assert ask() == "cut"


def test_what_was_learned_survives_a_restart_of_the_driver(network: Network, guest: Guest, world: Outside) -> None:
    port = give(network, guest, allow_internet=False, egress=("api.example.com",))
    guest.resolve("api.example.com")
    before = dict(_running(network._settings.machines_dir))
    network.install([port])
    assert guest.reaches(world.address)
    assert dict(_running(network._settings.machines_dir)) == before


def test_a_change_of_names_takes_effect_on_the_resolver(network: Network, guest: Guest, world: Outside) -> None:
    give(network, guest, allow_internet=False, egress=("one.test",))
    assert guest.resolve("one.test") == world.address
    give(network, guest, generation=2, before=1, allow_internet=False, egress=("two.test",))
    assert guest.resolve("one.test") == NXDOMAIN
    assert guest.resolve("two.test") == world.address
    give(network, guest, generation=3, before=2, allow_internet=False)
    assert guest.resolve("two.test") == "refused"
    assert not guest.reaches(world.address)
    assert len(list(_running(network._settings.machines_dir))) == 1


SERVE = """
import socket, sys
listeners = []
for port in map(int, sys.argv[1:]):
    s = socket.socket(); s.bind(("0.0.0.0", port)); s.listen(); listeners.append(s)
print("up", flush=True)
sys.stdin.read()
"""


@contextmanager
def serving(guest: Guest, *ports: int) -> Iterator[None]:
    """Somebody in the guest listens on these ports."""
    command = ["nsenter", "-t", str(guest.pid), "-n", sys.executable, "-c", SERVE, *map(str, ports)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == "up\n"
            yield
        finally:
            server.kill()


def test_the_host_reaches_listed_ports_only(network: Network, guest: Guest) -> None:
    ports = [22, 8080, 9090, 10022]
    with serving(guest, *ports):
        give(network, guest)
        assert [port for port in ports if _connects(guest.ip, port)] == ports
        give(network, guest, ingress_ports=(8080,))
        assert [port for port in ports if _connects(guest.ip, port)] == [22, 8080, 10022]
        # What it asked for itself still comes back.
        assert guest.resolve("www.example.com") != NOTHING


def test_the_hosts_connections_to_a_guest_are_counted_and_ended(network: Network, guest: Guest) -> None:
    give(network, guest)
    with serving(guest, 22, 8080, 9090), ExitStack() as stack:
        open_ = {port: stack.enter_context(socket.create_connection((guest.ip, port), 2)) for port in (22, 8080, 9090)}
        assert sockets.count(guest.ip) == 2
        sockets.end(guest.ip, [8080, 4444])
        assert sockets.count(guest.ip) == 1
        open_[8080].settimeout(2)
        with pytest.raises(ConnectionError):
            open_[8080].recv(1)
        open_[9090].sendall(b"x")


FLOOD = """
import socket, sys
asked = b"\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0\\3www\\7example\\3com\\0\\0\\1\\0\\1"
with socket.socket(type=socket.SOCK_DGRAM) as s:
    s.settimeout(1)
    s.connect((sys.argv[1], 53))
    got = 0
    for _ in range(5000):
        s.send(asked)
    try:
        while s.recv(512):
            got += 1
    except TimeoutError:
        print(got)
"""


def test_a_guest_that_floods_the_resolver_does_not_keep_it_from_others(
    network: Network, new_guest: Callable[[int], Guest], world: Outside
) -> None:
    loud, other = new_guest(5), new_guest(6)
    give(network, loud)
    network.admit(Port("m6", other.ip, NetworkPolicy()))
    assert 0 < int(loud.run(FLOOD, loud.gateway)) < 2500
    assert other.resolve("www.example.com") == world.address


def test_a_resolver_that_died_comes_back_and_those_of_nobody_end(
    network: Network, guest: Guest, world: Outside
) -> None:
    folder = network._settings.machines_dir
    policy = NetworkPolicy(allow_internet=False, egress=("api.example.com",))
    record = Record("m5", guest.ip, "sha256:x", 1, 128, 64, policy)
    MachineDir(folder, "m5").write_record(record)
    network.admit(Port("m5", guest.ip, policy))
    stray = MachineDir(folder, "gone")
    stray.make()
    Resolver(stray.resolver).named(guest.gateway, ["x.test"], ["inet#none#none"], 60)
    Resolver(MachineDir(folder, "m5").resolver).end()
    Resolver(folder / ".network" / "resolver").end()
    assert guest.resolve("api.example.com") in ("refused", NOTHING)
    NamesKeeper(network, lambda: machine_dirs(folder)).turn(0)
    assert guest.resolve("api.example.com") == world.address
    assert guest.reaches(world.address)
    assert sorted(conf.parent.name for _, conf in _running(folder)) == [".network", "m5"]


def test_nothing_of_a_revoked_machine_is_left(network: Network, guest: Guest) -> None:
    before = _table(network)
    give(network, guest, allow_internet=False, egress=("one.test", "192.0.2.0/24"), ingress_ports=(80,))
    assert _table(network) != before
    for _ in range(2):
        network.revoke(guest.ip, "m5")
        assert _table(network) == before
    assert [conf.parent.name for _, conf in _running(network._settings.machines_dir)] == [".network"]


def _table(network: Network) -> str:
    shown = subprocess.run(["nft", "-s", "list", "table", "inet", network.table], capture_output=True, text=True)
    return shown.stdout.replace("elements = {  }", "")


def test_guests_change_their_policies_side_by_side(network: Network, new_guest: Callable[[int], Guest]) -> None:
    guests = {number: new_guest(number) for number in (5, 6, 7)}

    def change(number: int) -> None:
        for turn in range(4):
            names = (f"n{number}-{turn}.test",)
            network.admit(Port(f"m{number}", guests[number].ip, NetworkPolicy(False, names), turn))

    threads = [threading.Thread(target=change, args=(number,)) for number in guests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, guest in guests.items():
        assert guest.resolve(f"n{number}-3.test") not in (NXDOMAIN, NOTHING, "refused")
        assert guest.resolve(f"n{number}-2.test") == NXDOMAIN
