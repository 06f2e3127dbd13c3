"""Images from a real registry on the loopback interface, and from registries that do not respond."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.free_ports import free_port
from tests.vmbackend.registry import push, running_registry
from tests.vmbackend.stores import (
    CONFIG,
    SECRET_HASH,
    insecure_store,
    pull,
    registry,
    rootfs,
    store,
)
from vmbackend import errors
from vmbackend.images.build import add_directory_image
from vmbackend.images.store import ImageStore
from vmbackend.images.types import ImageCancelled

__all__ = ["registry", "rootfs", "store"]
pytestmark = pytest.mark.host
INDEX = "application/vnd.oci.image.index.v1+json"


def test_an_image_by_digest_needs_no_registry_once_it_is_ready(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    with running_registry(tmp_path / "registry") as address:
        push(tmp_path / "oci", "localhost/tiny:latest", f"{address}/app:1")
        store = insecure_store(store, tmp_path, address)
        image = pull(store, f"{address}/app:1")
    assert pull(store, f"{address}/app@{image.digest}") == image
    with pytest.raises(errors.ImageUnreachable):
        pull(store, f"{address}/app:1")


def test_a_registry_mirror_serves_the_mirrored_name(
    store: ImageStore, registry: str, rootfs: Path, tmp_path: Path
) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    push(tmp_path / "oci", "localhost/tiny:latest", f"{registry}/library/app:1")
    store = insecure_store(store, tmp_path, registry, registry_mirrors={"docker.io": registry})
    assert pull(store, "app:1").config == CONFIG


def test_a_registry_that_is_not_on_loopback_is_reached_through_the_proxy(
    store: ImageStore, registry: str, rootfs: Path, tmp_path: Path
) -> None:
    """Go asks its proxy for every address but those of loopback; this one is the host's own, by another spelling."""
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    push(tmp_path / "oci", "localhost/tiny:latest", f"{registry}/app:1")
    address = registry.replace("127.0.0.1", "0.0.0.0")
    assert pull(insecure_store(store, tmp_path, address), f"{address}/app:1").config == CONFIG


def test_manifest_lists_select_our_platform_or_are_refused(
    store: ImageStore, registry: str, rootfs: Path, tmp_path: Path
) -> None:
    oci = tmp_path / "oci"
    add_directory_image(oci, "localhost/tiny", rootfs, CONFIG)
    arm = add_directory_image(oci, "localhost/arm", rootfs, CONFIG, arch="arm64")
    push(oci, "localhost/arm:latest", f"{registry}/app:arm")
    push(oci, "localhost/tiny:latest", f"{registry}/app:amd")
    store = insecure_store(store, tmp_path, registry)
    amd = pull(store, f"{registry}/app:amd").digest
    put_list(registry, oci, "both", {"arm64": arm, "amd64": amd})
    put_list(registry, oci, "only", {"arm64": arm})
    both = pull(store, f"{registry}/app:both")
    assert both.config == CONFIG
    assert both.digest not in (arm, amd)
    for tag in ("only", "arm"):
        with pytest.raises(errors.ImageWrongPlatform, match="linux/arm64"):
            pull(store, f"{registry}/app:{tag}")


def put_list(registry: str, oci: Path, tag: str, entries: dict[str, str]) -> str:
    manifests = [
        described(oci, digest) | {"platform": {"os": "linux", "architecture": arch}} for arch, digest in entries.items()
    ]
    return put_index(registry, tag, manifests)


def described(oci: Path, digest: str) -> dict[str, Any]:
    """The entry of an image of the layout, without a platform."""
    size = (oci / "blobs/sha256" / digest[7:]).stat().st_size
    return {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": size}


def put_index(registry: str, tag: str, manifests: list[dict[str, Any]], *, named: bool = True) -> str:
    """`named`: with its own media type, which some leave out."""
    body = json.dumps({"schemaVersion": 2, **({"mediaType": INDEX} if named else {}), "manifests": manifests})
    argv = ["curl", "-sf", "-X", "PUT", "-H", f"Content-Type: {INDEX}", "--data-binary", body]
    subprocess.run([*argv, f"http://{registry}/v2/app/manifests/{tag}"], check=True, capture_output=True)
    return f"sha256:{hashlib.sha256(body.encode()).hexdigest()}"


@pytest.mark.parametrize("named", [True, False])
def test_an_index_in_an_index_is_resolved_from_a_registry_and_from_the_local_store(
    store: ImageStore, registry: str, rootfs: Path, tmp_path: Path, named: bool
) -> None:
    """As builders write them that add the result of one build to an index of others; some levels name no platform."""
    oci = tmp_path / "made"
    amd = add_directory_image(oci, "localhost/amd", rootfs, CONFIG)
    arm = add_directory_image(oci, "localhost/arm", rootfs, CONFIG, arch="arm64")
    for name in ("amd", "arm"):
        push(oci, f"localhost/{name}:latest", f"{registry}/app:{name}")
    proof = described(oci, arm) | {"platform": {"os": "unknown", "architecture": "unknown"}}
    for number, entries in enumerate([[arm, amd], [arm]]):
        leaves = [proof, *(described(oci, digest) for digest in entries)]
        inner = put_index(registry, f"inner{number}", leaves, named=named)
        entry = {"mediaType": INDEX, "digest": inner, "size": 1}
        put_index(registry, f"outer{number}", [proof, entry], named=named)
    insecure = insecure_store(store, tmp_path, registry)
    pulled = pull(insecure, f"{registry}/app:outer0")
    assert pulled.config == CONFIG
    assert pull(insecure, f"{registry}/app@{pulled.digest}") == pulled, "the digest is that of the outermost index"
    with pytest.raises(errors.ImageWrongPlatform, match="made for linux/arm64;"):
        pull(insecure, f"{registry}/app:outer1")
    for number in (0, 1):
        for tag in (f"outer{number}", f"inner{number}"):
            save_manifest(registry, tag, oci)
    local = ImageStore(tmp_path / "second", replace(store.settings, local_store=oci))
    assert pull(local, f"localhost/app@{pulled.digest}").config == CONFIG


def save_manifest(registry: str, tag: str, oci: Path) -> None:
    """Into the blobs of a layout."""
    argv = ["curl", "-sf", "-H", f"Accept: {INDEX}", f"http://{registry}/v2/app/manifests/{tag}"]
    content = subprocess.run(argv, check=True, capture_output=True).stdout
    (oci / "blobs/sha256" / hashlib.sha256(content).hexdigest()).write_bytes(content)


@pytest.mark.parametrize("kind", ["application/octet-stream", "application/json", "text/html", ""])
def test_an_old_image_whose_configuration_has_another_type_is_pulled(
    store: ImageStore, registry: str, rootfs: Path, tmp_path: Path, kind: str
) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    push(tmp_path / "oci", "localhost/tiny:latest", f"{registry}/app:1", "--format=v2s2")
    manifests, docker = f"http://{registry}/v2/app/manifests/", "application/vnd.docker.distribution.manifest.v2+json"
    manifest = httpx.get(f"{manifests}1", headers={"Accept": docker}, trust_env=False).raise_for_status().json()
    manifest["config"]["mediaType"] = kind
    body, headers = json.dumps(manifest), {"Content-Type": docker}
    httpx.put(f"{manifests}old", content=body, headers=headers, trust_env=False).raise_for_status()
    assert pull(insecure_store(store, tmp_path, registry), f"{registry}/app:old").config == CONFIG


def test_a_missing_image_raises_image_not_found(store: ImageStore, registry: str, tmp_path: Path) -> None:
    for name in ("app:1", "app@sha256:" + "0" * 64):
        with pytest.raises(errors.ImageNotFound):
            pull(insecure_store(store, tmp_path, registry), f"{registry}/{name}")
    with pytest.raises(errors.ImageNotFound):
        pull(store, "localhost/nothing")


def test_a_private_image_needs_the_credentials_file(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    htpasswd = tmp_path / "htpasswd"
    htpasswd.write_text(f"me:{SECRET_HASH}\n")
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    with running_registry(tmp_path / "registry", htpasswd) as address:
        push(tmp_path / "oci", "localhost/tiny:latest", f"{address}/app:1", "--dest-creds=me:secret")
        with pytest.raises(errors.ImageNotFound, match="private"):
            pull(insecure_store(store, tmp_path, address), f"{address}/app:1")
        auth = tmp_path / "auth.json"
        auth.write_text(json.dumps({"auths": {address: {"auth": "bWU6c2VjcmV0"}}}))
        assert pull(insecure_store(store, tmp_path, address, auth_file=auth), f"{address}/app:1").config == CONFIG


def test_a_closed_port_is_unreachable(store: ImageStore, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(errors.ImageUnreachable) as caught:
        pull(insecure_store(store, tmp_path, address), f"{address}/app:1")
    assert str(tmp_path) not in caught.value.message


@pytest.mark.parametrize(
    "domain", ["127.0.0.1:5000", "[::1]:5000", "169.254.169.254", "10.0.0.7:443", "localhost:80", "[64:ff9b::7f00:1]"]
)
def test_a_registry_in_a_private_network_is_not_contacted(store: ImageStore, domain: str) -> None:
    with pytest.raises(errors.ImageUnreachable, match="public address"):
        pull(store, f"{domain}/app:1")


def test_a_private_registry_listed_in_the_settings_is_contacted(
    store: ImageStore, registry: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """This one has no TLS, which the setting still requires."""
    settings = replace(store.settings, private_registries=(registry,))
    with pytest.raises(errors.ImageUnreachable), caplog.at_level("WARNING"):
        pull(ImageStore(tmp_path / "root", settings), f"{registry}/app:1")
    assert "server gave HTTP response to HTTPS client" in caplog.text


@pytest.fixture
def blackhole() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_registry_that_never_answers_is_unreachable(store: ImageStore, blackhole: str, tmp_path: Path) -> None:
    with pytest.raises(errors.ImageUnreachable):
        pull(insecure_store(store, tmp_path, blackhole, registry_timeout=0.5), f"{blackhole}/app:1")


def test_deadline_and_cancellation_end_the_wait(store: ImageStore, blackhole: str, tmp_path: Path) -> None:
    store = insecure_store(store, tmp_path, blackhole)
    started = time.monotonic()
    with pytest.raises(errors.DeadlineExceeded):
        pull(store, f"{blackhole}/app:1", deadline=started + 0.3)
    with pytest.raises(ImageCancelled):
        pull(store, f"{blackhole}/app:1", cancelled=lambda: time.monotonic() > started + 0.6)
    assert time.monotonic() - started < 20  # a query of a registry may take 30
