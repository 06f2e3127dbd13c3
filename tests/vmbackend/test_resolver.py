"""The configuration of the guests' resolvers, without processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmbackend.libvirt import resolver

RESOLV_CONF = """\
# made by something
search example.com
nameserver 192.0.2.53
 nameserver\t2001:db8::53 # second
nameserver fe80::1%eth0
nameserver 127.0.0.53 ; local
#nameserver 192.0.2.99
nameserver evil\\nuser=root
options edns0
"""


def test_the_hosts_servers_are_read_from_resolv_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "_RESOLV_CONF", tmp_path / "resolv.conf")
    assert resolver.host_servers() == []
    (tmp_path / "resolv.conf").write_text(RESOLV_CONF)
    assert resolver.host_servers() == ["192.0.2.53", "2001:db8::53", "fe80::1%eth0", "127.0.0.53"]
