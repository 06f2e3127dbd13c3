"""Opens an instance to other machines: its database, Redis and joins listen on one private address, in TLS.

Nothing but the edge listens on a network before that. The files are in `$STATE/network`; the address is written last,
and every start reads it.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from contextlib import closing
from ipaddress import AddressValueError, IPv4Address

from common.private_network import ADDRESS, network_folder, stored_address
from config.env import Env
from supervise import control
from supervise.files import write_private
from supervise.instance import Instance, InstanceError
from supervise.join_request import JoinError, make_transfer_key
from supervise.network_certificates import make_certificates
from supervise.redis_configuration import redis_port
from supervise.subnets import own_addresses
from vmbackend.peers import unusable

DATABASE_PORT = 5432
# They read the address when they start; the others reach the database and Redis by sockets.
_AFFECTED = ("redis", "postgres", "vmhost", "edge")
# Documentation's: nothing is sent there, it only asks the kernel for its route.
_FAR_AWAY = ("192.0.2.1", 9)


def open_to_machines(instance: Instance, settings: Env, given: str, say: Callable[[str], None]) -> str:
    """Open the instance at an address of this machine, by default the one that its packets leave with. Return it.

    Idempotent: a call that died half way is repeated. Those processes that must listen are started again if the
    instance runs, which takes seconds; machines go on. Raise InstanceError, and nothing is open then that was not.
    """
    require_own_address(address := given or settings.host_address or _outgoing_address())
    with control.exclusive_control(instance, "network"):
        folder = network_folder(instance.state)
        folder.mkdir(mode=0o700, exist_ok=True)
        require_transfer_key(instance)
        if address != stored_address(instance.state):
            for port, what in _ports(settings).items():
                _require_free(address, port, what)
            make_certificates(folder, address)
            write_private(folder / ADDRESS, address)
        if control.supervisor_pid(instance) and not all(_listens(address, port) for port in _ports(settings)):
            say(f"opening {address} to machines that join")
            with control.exclusive_control(instance):
                control.restart_processes(instance, instance.settings(), _AFFECTED)
    return address


def require_transfer_key(instance: Instance) -> None:
    """Make the key with which this machine's host moves files of workspaces, unless it has one. Raise InstanceError."""
    try:
        make_transfer_key(instance.state)
    except JoinError as error:
        raise InstanceError(str(error)) from error


def _ports(settings: Env) -> dict[int, str]:
    ports = {settings.private_port: "joins", DATABASE_PORT: "PostgreSQL", redis_port(settings): "Redis"}
    if not settings.has_own_server:
        del ports[DATABASE_PORT]
    return ports


def require_own_address(address: str) -> None:
    """Raise InstanceError unless it is an IPv4 address of this machine that others can reach."""
    try:
        reason = unusable(IPv4Address(address))
    except AddressValueError:
        reason = f"{address!r} is not an IPv4 address."
    if reason:
        raise InstanceError(f"ADDRESS: {reason} Name the private address of this machine.")
    own = own_addresses()
    if address not in own:
        raise InstanceError(
            f"ADDRESS: {address} is not an address of this machine, which has {', '.join(sorted(own))}."
        )


def _outgoing_address() -> str:
    """Return the address with which packets to far places leave. Raise InstanceError."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(_FAR_AWAY)
        except OSError as error:
            raise InstanceError("Name the private address of this machine: make host-token ADDRESS=...") from error
        return str(probe.getsockname()[0])


def _require_free(address: str, port: int, what: str) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise InstanceError(f"Port {port} of {address}, for {what}: {error.strerror}.") from error
            raise InstanceError(
                f"Port {port} of {address}, which {what} needs for other machines, is in use by another program."
            ) from error


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 2).close()
    except OSError:
        return False
    return True
