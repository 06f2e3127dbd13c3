"""A join through somebody who answers in the control machine's place: the token's fingerprint names one authority."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import pytest

from supervise import join_request
from supervise.network_certificates import make_certificates


def authority(folder: Path, *, padded: bool) -> str:
    """Return the certificate of an authority whose base64 ends with padding, as those of two instances in three."""
    for number in range(200):
        tried = folder / str(number)
        tried.mkdir(parents=True)
        make_certificates(tried, "192.0.2.1")
        text = (tried / "ca.pem").read_text()
        if ("=\n-----END" in text) == padded:
            return text
    raise AssertionError("no such certificate was made")


@pytest.mark.parametrize("padded", [True, False])
def test_no_second_authority_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, padded: bool) -> None:
    named = authority(tmp_path / "named", padded=padded)
    other = authority(tmp_path / "other", padded=padded)
    monkeypatch.setattr(join_request, "_read", lambda *_: f"{named}{other}".encode())
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(named)).hexdigest()
    try:
        trusted = join_request._authority("https://192.0.2.1:2443", fingerprint)
    except join_request.JoinError:
        return
    assert len(ssl.create_default_context(cadata=trusted).get_ca_certs()) == 1


def test_an_answer_that_is_no_json_is_an_error_of_the_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_request, "_read", lambda *_: b"<html>")
    with pytest.raises(join_request.JoinError):
        join_request._ask("https://192.0.2.1:2443/join/hosts", {}, ssl.create_default_context())
