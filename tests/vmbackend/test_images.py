"""From references to base disks: with the local store, and with a real registry on the loopback."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.vmbackend.registry import free_port, push, running_registry
from vmbackend import errors
from vmbackend.images.build import add_directory_image
from vmbackend.images.store import Image, ImageConfig, ImageSettings, ImageStore
from vmbackend.images.types import ImageCancelled

pytestmark = pytest.mark.host
MIB = 1 << 20
SECRET_HASH = "$2b$04$kHRTyCNNT0PSbrZsotevbOcAfxycSLNYyZuz1D8cyXAXxhAZhoZCC"  # bcrypt of "secret"
CONFIG = ImageConfig(
    entrypoint=("/init", "-x"),
    cmd=("a b", "c"),
    env={"PATH": "/bin", "X": "1=2"},
    working_dir="/srv",
    user="1000:1000",
    exposed_ports=("8080/tcp",),
    labels={"k": "v"},
)


def pull(store: ImageStore, reference: str, **changes: Any) -> Image:
    arguments: dict[str, Any] = {"progress": lambda *_: None, "deadline": time.monotonic() + 60}
    return store.ensure(reference, **(arguments | changes))


def files_of(image: Image, target: Path) -> Path:
    subprocess.run(["unsquashfs", "-q", "-n", "-d", target, image.rootfs], check=True, capture_output=True)
    return target


def leftovers(root: Path) -> list[Path]:
    return [path for path in (root / "scratch").iterdir() if path.is_dir()]


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    path = tmp_path / "rootfs"
    (path / "etc").mkdir(parents=True)
    (path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    return path


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    settings = ImageSettings(local_store=tmp_path / "oci", evict_grace=0, registry_timeout=10)
    return ImageStore(tmp_path / "root", settings)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    with running_registry(tmp_path / "registry") as address:
        yield address


def insecure(store: ImageStore, tmp_path: Path, *registries: str, **changes: Any) -> ImageStore:
    settings = replace(store.settings, insecure_registries=registries, **changes)
    return ImageStore(tmp_path / "root", settings)


def layered_image(layout: Path, layers: list[Callable[[tarfile.TarFile], None]], name: str = "image") -> None:
    """An image of hand-made layers, whiteouts and hostile names included."""
    for argv in (["init", "--layout", layout], ["new", "--image", f"{layout}:{name}"]):
        subprocess.run(["umoci", *map(str, argv)], check=True, capture_output=True)
    for fill in layers:
        buffer = layout.parent / "layer.tar"
        with tarfile.open(buffer, "w", format=tarfile.PAX_FORMAT) as tar:
            fill(tar)
        argv = ["umoci", "raw", "add-layer", "--image", f"{layout}:{name}", str(buffer)]
        subprocess.run(argv, check=True, capture_output=True)


def add(tar: tarfile.TarFile, name: str, content: bytes = b"x", **fields: Any) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(content))


def test_a_directory_becomes_a_base_disk_with_its_configuration(
    store: ImageStore, rootfs: Path, tmp_path: Path
) -> None:
    digest = add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    image = pull(store, "localhost/tiny")
    assert (image.digest, image.config) == (digest, CONFIG)
    assert image.size_bytes == image.rootfs.stat().st_size
    assert (files_of(image, tmp_path / "out") / "etc/passwd").read_text().startswith("root:")
    assert leftovers(tmp_path / "root") == []


def test_modes_owners_links_and_attributes_survive(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    program = rootfs / "program"
    program.write_bytes(b"#!")
    os.chown(program, 123, 456)
    program.chmod(0o4755)
    os.setxattr(program, "user.note", b"kept")
    (rootfs / "again").hardlink_to(program)
    (rootfs / "dangling").symlink_to("/nowhere")
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, ImageConfig())
    out = files_of(pull(store, "localhost/tiny"), tmp_path / "out")
    status = (out / "program").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (123, 456, 0o4755)
    assert os.getxattr(out / "program", "user.note") == b"kept"
    assert status.st_ino == (out / "again").stat().st_ino
    assert (out / "dangling").readlink() == Path("/nowhere")


def test_a_ready_image_is_returned_at_once(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    first = pull(store, "localhost/tiny")
    started = time.monotonic()
    assert pull(store, "localhost/tiny") == first == store.get(first.digest)
    assert time.monotonic() - started < 0.2


def test_a_pinned_local_image_outlives_its_tag(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    old = add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    (rootfs / "new").touch()
    new = add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    assert pull(store, "localhost/tiny").digest == new != old
    assert pull(store, f"localhost/tiny@{old}").digest == old


def test_progress_rises_to_a_hundred(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    seen: list[tuple[int, str]] = []
    pull(store, "localhost/tiny", progress=lambda percent, words: seen.append((percent, words)))
    percents = [percent for percent, _ in seen]
    assert percents == sorted(percents)
    assert percents[-1] == 100
    assert {words for _, words in seen} >= {"Downloading the image.", "Unpacking the image."}


def test_whiteouts_and_opaque_directories_hide_lower_layers(store: ImageStore, registry: str, tmp_path: Path) -> None:
    def lower(tar: tarfile.TarFile) -> None:
        for name in ("gone", "kept", "dir/a", "dir/b", "opaque/old"):
            add(tar, name)

    def upper(tar: tarfile.TarFile) -> None:
        for name in (".wh.gone", "dir/.wh.a", "opaque/.wh..wh..opq", "opaque/new"):
            add(tar, name, b"")

    layered_image(tmp_path / "made", [lower, upper])
    push(tmp_path / "made", "image", f"{registry}/app:1")
    image = pull(insecure(store, tmp_path, registry), f"{registry}/app:1")
    out = files_of(image, tmp_path / "out")
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*") if not path.is_dir())
    assert found == ["dir/b", "kept", "opaque/new"]


def test_layers_cannot_write_outside(store: ImageStore, registry: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    def hostile(tar: tarfile.TarFile) -> None:
        add(tar, "../../../../../../../../.." + str(outside / "dots"))
        add(tar, str(outside / "absolute"))
        add(tar, "link", b"", type=tarfile.SYMTYPE, linkname=str(outside))
        add(tar, "link/through")
        add(tar, "up", b"", type=tarfile.SYMTYPE, linkname="../../../../../../../.." + str(outside))
        add(tar, "up/through")

    layered_image(tmp_path / "made", [hostile])
    push(tmp_path / "made", "image", f"{registry}/evil:1")
    before = sorted(tmp_path.iterdir())
    pull(insecure(store, tmp_path, registry), f"{registry}/evil:1")
    assert list(outside.iterdir()) == []
    assert sorted(tmp_path.iterdir()) == sorted({*before, tmp_path / "root"})


def test_layers_packed_with_zstd_are_unpacked(store: ImageStore, registry: str, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    options = ("--dest-compress-format=zstd", "--format=oci")
    push(tmp_path / "oci", "localhost/tiny:latest", f"{registry}/app:z", *options)
    image = pull(insecure(store, tmp_path, registry), f"{registry}/app:z")
    assert (files_of(image, tmp_path / "out") / "etc/passwd").exists()


def test_an_image_by_digest_needs_no_registry_once_it_is_ready(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    with running_registry(tmp_path / "registry") as address:
        push(tmp_path / "oci", "localhost/tiny:latest", f"{address}/app:1")
        store = insecure(store, tmp_path, address)
        image = pull(store, f"{address}/app:1")
    assert pull(store, f"{address}/app@{image.digest}") == image
    with pytest.raises(errors.ImageUnreachable):
        pull(store, f"{address}/app:1")


def test_a_registry_mirror_answers_for_another_name(
    store: ImageStore, registry: str, rootfs: Path, tmp_path: Path
) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    push(tmp_path / "oci", "localhost/tiny:latest", f"{registry}/library/app:1")
    store = insecure(store, tmp_path, registry, registry_mirrors={"docker.io": registry})
    assert pull(store, "app:1").config == CONFIG


def test_manifest_lists_lead_to_our_platform_or_are_refused(
    store: ImageStore, registry: str, rootfs: Path, tmp_path: Path
) -> None:
    oci = tmp_path / "oci"
    add_directory_image(oci, "localhost/tiny", rootfs, CONFIG)
    arm = add_directory_image(oci, "localhost/arm", rootfs, CONFIG, arch="arm64")
    push(oci, "localhost/arm:latest", f"{registry}/app:arm")
    push(oci, "localhost/tiny:latest", f"{registry}/app:amd")
    store = insecure(store, tmp_path, registry)
    amd = pull(store, f"{registry}/app:amd").digest
    put_list(registry, oci, "both", {"arm64": arm, "amd64": amd})
    put_list(registry, oci, "only", {"arm64": arm})
    both = pull(store, f"{registry}/app:both")
    assert both.config == CONFIG
    assert both.digest not in (arm, amd)
    for tag in ("only", "arm"):
        with pytest.raises(errors.ImageWrongPlatform, match="linux/arm64"):
            pull(store, f"{registry}/app:{tag}")


def put_list(registry: str, oci: Path, tag: str, entries: dict[str, str]) -> None:
    manifests = [
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest,
            "size": (oci / "blobs/sha256" / digest[7:]).stat().st_size,
            "platform": {"os": "linux", "architecture": arch},
        }
        for arch, digest in entries.items()
    ]
    kind = "application/vnd.oci.image.index.v1+json"
    body = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": manifests})
    argv = ["curl", "-sf", "-X", "PUT", "-H", f"Content-Type: {kind}", "--data-binary", body]
    subprocess.run([*argv, f"http://{registry}/v2/app/manifests/{tag}"], check=True, capture_output=True)


def test_an_image_that_the_registry_does_not_have(store: ImageStore, registry: str, tmp_path: Path) -> None:
    for name in ("app:1", "app@sha256:" + "0" * 64):
        with pytest.raises(errors.ImageNotFound):
            pull(insecure(store, tmp_path, registry), f"{registry}/{name}")
    with pytest.raises(errors.ImageNotFound):
        pull(store, "localhost/nothing")


def test_a_private_image_needs_the_credentials_file(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    htpasswd = tmp_path / "htpasswd"
    htpasswd.write_text(f"me:{SECRET_HASH}\n")
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    with running_registry(tmp_path / "registry", htpasswd) as address:
        push(tmp_path / "oci", "localhost/tiny:latest", f"{address}/app:1", "--dest-creds=me:secret")
        with pytest.raises(errors.ImageNotFound, match="private"):
            pull(insecure(store, tmp_path, address), f"{address}/app:1")
        auth = tmp_path / "auth.json"
        auth.write_text(json.dumps({"auths": {address: {"auth": "bWU6c2VjcmV0"}}}))
        assert pull(insecure(store, tmp_path, address, auth_file=auth), f"{address}/app:1").config == CONFIG


def test_a_closed_port_is_unreachable(store: ImageStore, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(errors.ImageUnreachable) as caught:
        pull(insecure(store, tmp_path, address), f"{address}/app:1")
    assert str(tmp_path) not in caught.value.sentence


@pytest.mark.parametrize("domain", ["127.0.0.1:5000", "[::1]:5000", "169.254.169.254", "10.0.0.7:443", "localhost:80"])
def test_a_registry_inside_our_own_network_is_not_asked(store: ImageStore, domain: str) -> None:
    with pytest.raises(errors.ImageUnreachable, match="public address"):
        pull(store, f"{domain}/app:1")


def test_a_private_registry_that_a_setting_names_is_asked(store: ImageStore, registry: str, tmp_path: Path) -> None:
    settings = replace(store.settings, private_registries=(registry,))
    with pytest.raises(errors.ImageUnreachable) as caught:  # it speaks no TLS, which this setting does not excuse
        pull(ImageStore(tmp_path / "root", settings), f"{registry}/app:1")
    assert "public address" not in caught.value.sentence


@pytest.fixture
def blackhole() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_registry_that_never_answers_is_unreachable(store: ImageStore, blackhole: str, tmp_path: Path) -> None:
    with pytest.raises(errors.ImageUnreachable):
        pull(insecure(store, tmp_path, blackhole, registry_timeout=0.5), f"{blackhole}/app:1")


def test_deadline_and_cancellation_end_the_wait(store: ImageStore, blackhole: str, tmp_path: Path) -> None:
    store = insecure(store, tmp_path, blackhole)
    started = time.monotonic()
    with pytest.raises(errors.DeadlineExceeded):
        pull(store, f"{blackhole}/app:1", deadline=started + 0.3)
    with pytest.raises(ImageCancelled):
        pull(store, f"{blackhole}/app:1", cancelled=lambda: time.monotonic() > started + 0.6)
    assert time.monotonic() - started < 3


def test_an_image_above_the_limit_is_stopped_while_it_unpacks(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    for number in range(6):
        (rootfs / f"zeros{number}").write_bytes(bytes(10 * MIB))  # packs to almost nothing
    add_directory_image(tmp_path / "oci", "localhost/bomb", rootfs, CONFIG)
    small = ImageStore(tmp_path / "root", replace(store.settings, max_unpacked_bytes=16 * MIB))
    with pytest.raises(errors.ImageTooLarge):
        pull(small, "localhost/bomb")
    assert leftovers(tmp_path / "root") == []
    assert pull(store, "localhost/bomb").size_bytes < MIB


def test_an_image_that_says_it_is_too_large_is_not_fetched(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    (rootfs / "noise").write_bytes(os.urandom(2 * MIB))
    add_directory_image(tmp_path / "oci", "localhost/big", rootfs, CONFIG)
    seen: list[str] = []
    small = ImageStore(tmp_path / "root", replace(store.settings, max_unpacked_bytes=MIB))
    with pytest.raises(errors.ImageTooLarge):
        pull(small, "localhost/big", progress=lambda _, words: seen.append(words))
    assert "Downloading the image." not in seen


def test_a_full_disk_is_no_room(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    full = ImageStore(tmp_path / "root", replace(store.settings, min_free_bytes=1 << 60))
    with pytest.raises(errors.NoRoom):
        pull(full, "localhost/tiny")
    assert leftovers(tmp_path / "root") == []


def test_damaged_layers_are_told(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    layer = max((tmp_path / "oci/blobs/sha256").iterdir(), key=lambda path: path.read_bytes()[:2] == b"\x1f\x8b")
    layer.write_bytes(layer.read_bytes()[:-20] + bytes(20))
    with pytest.raises(errors.ImageBroken):
        pull(store, "localhost/tiny")
    assert leftovers(tmp_path / "root") == []


def _pull_in_process(root: Path, settings: ImageSettings, log: Path) -> None:
    def progress(_: int, words: str) -> None:
        with log.open("a") as handle:
            handle.write(words + "\n")

    ImageStore(root, settings).ensure("localhost/big", progress=progress, deadline=time.monotonic() + 60)


@pytest.fixture
def big(rootfs: Path, tmp_path: Path) -> str:
    for number in range(1500):
        (rootfs / f"noise{number}").write_bytes(os.urandom(16384))
    return add_directory_image(tmp_path / "oci", "localhost/big", rootfs, CONFIG)


def test_two_processes_pull_once(store: ImageStore, big: str, tmp_path: Path) -> None:
    logs = [tmp_path / "log0", tmp_path / "log1"]
    context = multiprocessing.get_context("spawn")
    arguments = [(tmp_path / "root", store.settings, log) for log in logs]
    processes = [context.Process(target=_pull_in_process, args=args) for args in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert sum("Unpacking the image." in log.read_text() for log in logs) == 1


def test_threads_pull_once(store: ImageStore, big: str) -> None:
    seen: list[str] = []
    threads = [
        threading.Thread(
            target=pull,
            args=(store, "localhost/big"),
            kwargs={"progress": lambda _, words: seen.append(words)},
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen.count("Writing the base disk.") == 1
    assert seen.count("The image is ready.") == 4


KILLED = """
import sys, time
from pathlib import Path
from vmbackend.images.store import ImageSettings, ImageStore
store = ImageStore(Path(sys.argv[1]), ImageSettings(local_store=Path(sys.argv[2])))
def progress(percent, words): print(words, flush=True)
store.ensure("localhost/big", progress=progress, deadline=time.monotonic() + 60)
"""


def wait_for_tools(root: Path) -> None:
    """Until the tools that a killed pull had started are gone too: the kernel ends them a moment after it."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if not any(works_in(process, str(root).encode()) for process in Path("/proc").glob("[0-9]*")):
            return
        time.sleep(0.02)
    raise AssertionError("a tool of the killed pull still runs")


def works_in(process: Path, root: bytes) -> bool:
    """Whether a process names the folder in its arguments, its environment or as its working directory."""
    try:
        told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        return root in told or root in bytes((process / "cwd").readlink())
    except OSError:
        return False


@pytest.mark.parametrize("phase", ["Downloading the image.", "Unpacking the image.", "Writing the base disk."])
@pytest.mark.parametrize("mended_by", ["sweep", "ensure"])
def test_a_killed_pull_leaves_only_what_is_removed(
    store: ImageStore, big: str, tmp_path: Path, phase: str, mended_by: str
) -> None:
    argv = [sys.executable, "-c", KILLED, str(tmp_path / "root"), str(tmp_path / "oci")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == phase:
                break
        process.send_signal(signal.SIGKILL)
    wait_for_tools(tmp_path / "root")
    assert len(leftovers(tmp_path / "root")) == 1
    assert store.get(big) is None
    if mended_by == "sweep":
        assert len(store.sweep()) == 1
        assert leftovers(tmp_path / "root") == []
    else:
        assert pull(store, "localhost/big").digest == big
        assert leftovers(tmp_path / "root") == []


def test_eviction_takes_the_least_recently_used_and_never_the_used(
    store: ImageStore, rootfs: Path, tmp_path: Path
) -> None:
    digests = []
    for number in range(4):
        (rootfs / "noise").write_bytes(os.urandom(MIB))
        add_directory_image(tmp_path / "oci", f"localhost/n{number}", rootfs, CONFIG)
        digests.append(pull(store, f"localhost/n{number}").digest)
        time.sleep(0.01)
    store.get(digests[0])
    size = store.list()[0].size_bytes
    small = ImageStore(tmp_path / "root", replace(store.settings, cache_bytes=2 * size + 8192))
    assert small.evict(in_use=[digests[1]]) == [digests[2], digests[3]]
    assert {image.digest for image in small.list()} == set(digests[:2])
    assert small.evict(in_use=[]) == []
    assert pull(small, "localhost/n2").digest == digests[2]


def test_an_image_just_used_is_not_evicted(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    image = pull(store, "localhost/tiny")
    careful = ImageStore(tmp_path / "root", replace(store.settings, cache_bytes=0, evict_grace=60))
    assert careful.evict(in_use=[]) == []
    assert careful.get(image.digest) == image
