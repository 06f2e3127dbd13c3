"""A real CA (pebble) with a name server (pebble-challtestsrv) that leads every name to this host."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.free_ports import free_port


@dataclass
class Pebble:
    """`authority`: the file of the certificate that its own https is trusted by."""

    port: int
    management_port: int
    authority: Path
    log: Path

    @property
    def directory(self) -> str:
        return f"https://127.0.0.1:{self.port}/dir"

    def root(self) -> bytes:
        """The certificate (PEM) by which what it issues is trusted."""
        return self._managed("/roots/0")

    def orders(self) -> int:
        """How many orders it has been asked for."""
        return self.log.read_text().count("Added order")

    def issued(self) -> int:
        return self.log.read_text().count("Issued certificate")

    def _managed(self, path: str) -> bytes:
        trust = ssl.create_default_context(cafile=str(self.authority))
        with urllib.request.urlopen(
            f"https://127.0.0.1:{self.management_port}{path}", context=trust, timeout=10
        ) as answer:
            found: bytes = answer.read()
        return found


@contextmanager
def open_pebble(
    folder: Path, http_port: int, *, validity_seconds: int = 90 * 86400, **variables: str
) -> Iterator[Pebble]:
    """It looks for tokens on `http_port` of this host."""
    certificate, key = write_certificate(folder)
    dns, manage = free_port(), free_port()
    made = Pebble(free_port(), free_port(), certificate, folder / "pebble.log")
    config = {
        "listenAddress": f"127.0.0.1:{made.port}",
        "managementListenAddress": f"127.0.0.1:{made.management_port}",
        "certificate": str(certificate),
        "privateKey": str(key),
        "httpPort": http_port,
        "tlsPort": free_port(),
        "ocspResponderURL": "",
        "externalAccountBindingRequired": False,
        "certificateValidityPeriod": validity_seconds,
    }
    (folder / "pebble.json").write_text(json.dumps({"pebble": config}))
    names = ("-dns01", f"127.0.0.1:{dns}", "-management", f"127.0.0.1:{manage}", "-defaultIPv6", "")
    others = ("-http01", "", "-https01", "", "-tlsalpn01", "")
    quick = {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0", "PEBBLE_AUTHZREUSE": "0"}
    with made.log.open("w") as log:
        running = [
            subprocess.Popen(["pebble-challtestsrv", *names, *others], stdout=log, stderr=log),
            subprocess.Popen(
                ["pebble", "-config", str(folder / "pebble.json"), "-dnsserver", f"127.0.0.1:{dns}"],
                stdout=log,
                stderr=log,
                env={**os.environ, **quick, **variables},
            ),
        ]
        try:
            _wait_until_it_answers(made)
            yield made
        finally:
            for process in running:
                process.kill()
                process.wait()


def _wait_until_it_answers(made: Pebble) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            made.root()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of its own for 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, SHA256())
    )
    paths = folder / "ca.pem", folder / "ca.key"
    paths[0].write_bytes(made.public_bytes(Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return paths


def settings_with(monkeypatch: Any, **changes: Any) -> None:
    from django.conf import settings

    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update=changes))
