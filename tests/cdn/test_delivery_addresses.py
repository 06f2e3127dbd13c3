"""Addresses of the CDN's host: one spelling of each file is delivered, and no other path or host."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings

from cdn.delivery import file_url
from cdn.models import File
from tests.callers import Caller
from tests.cdn.edge_files import HOST, CdnEdge, stored_file
from tests.cdn.test_delivery import PICTURE, edge, open_edge

__all__ = ["edge", "open_edge"]  # fixtures

pytestmark = pytest.mark.django_db(transaction=True)


def tricks(file: File, url: str) -> list[str]:
    path = "/" + url.split("/", 3)[3]
    kind, name = path[:3], path.rpartition("/")[2]
    return [
        "/", "/f", "/f/", f"/f/{file.pk}", f"/f/{file.pk}/", f"/f/{file.pk}/.", f"/{file.pk}/{name}", "/store/",
        f"{path}/", f"{path}/.", f"{path}/..", f"/f/../a/{file.pk}/{name}", f"/a/{file.pk}/{name}", f"{path}.br",
        f"/x/..{path}/x", f"/f/{file.pk}/../../../secret.txt", "/../secret.txt", "/%2e%2e/secret.txt",
        f"/f/{file.pk}/%2e%2e/%2e%2e/%2e%2e/secret.txt", f"/f/{file.pk}%00/{name}", f"{path}%00", f"{path}%00.png",
        f"/f/..%2f..%2fstore/files/{file.pk}/{file.sha256}", f"/../store/files/{file.pk}/{file.sha256}",
        f"/f/{file.pk}/..%5c..%5c{name}", f"/f//{file.pk}//{name}", f"//f/{file.pk}/{name}", f"/F/{file.pk}/{name}",
        f"/f/{file.pk.upper()}/{name}", f"/f/file_2222222222222222/{name}", f"/f/{file.pk}/{name.upper()}",
        f"/f/{file.pk}/{'0' * 32}.png", f"/f/{file.pk}/{name[:31]}.png", f"{path[:-3]}jpg", f"{path[:-4]}", f"{path}x",
        "/internal/edge/cdn", f"/internal/edge/cdn?path={path}", "/f/{http.request.host}/x", "/%ff",
        "/%", "/" + "a" * 5000,
        f"/f/{file.pk}/*", f"{kind}?{path}", "/static/a.css", "/healthz", "/cdn/files",
    ]  # fmt: skip


def test_no_other_path_is_delivered(edge: CdnEdge, api: Caller) -> None:
    (edge.instance.state / "secret.txt").write_text("of the host")
    (Path(settings.STATE) / "cdn/secret.txt").write_text("of the host")
    file = stored_file(api.account, PICTURE, "image/png")
    url = file_url(file)
    for linked in (False, True):
        for target in tricks(file, url):
            answer = edge.get(target)
            assert answer.status in {400, 404}, (target, linked, answer)
            assert b"of the host" not in answer.body
            assert PICTURE[:50] not in answer.body
        assert edge.file(url).status == 200


def test_a_path_in_another_spelling_is_the_same_file(edge: CdnEdge, api: Caller) -> None:
    url = file_url(stored_file(api.account, PICTURE, "image/png"))
    path = "/" + url.split("/", 3)[3]
    assert edge.get(path.replace("/f/", "/%66/")).body == PICTURE
    assert edge.get(path + "?download=1").body == PICTURE


@pytest.mark.parametrize("host", [f"{HOST}:80", HOST.upper(), f"{HOST}:65535"])
def test_the_host_in_another_spelling_is_the_same_host(edge: CdnEdge, api: Caller, host: str) -> None:
    for data in (b"one", b"two"):
        url = file_url(stored_file(api.account, data, "image/png"))
        assert edge.get("/" + url.split("/", 3)[3], host=host).body == data


@pytest.mark.parametrize("host", ["localhost", "evil.example", f"x.{HOST}", "127.0.0.1", f"{HOST}.evil.example"])
def test_other_hosts_deliver_nothing(edge: CdnEdge, api: Caller, host: str) -> None:
    url = file_url(stored_file(api.account, PICTURE, "image/png"))
    assert edge.file(url).status == 200
    path = "/" + url.split("/", 3)[3]
    assert PICTURE[:50] not in edge.get(path, host=host).body
    assert PICTURE[:50] not in edge.get(f"http://{host}{path}").body
