"""Pages from real machines: the kit's tar, and a folder with all that a file system may have."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.vm.client import Api
from tests.vm.instances import TestInstance

pytestmark = pytest.mark.vm

FOLDER = """
mkdir -p /srv/site/assets && cd /srv/site && echo one >index.html && head -c 3000000 /dev/urandom >assets/large.bin &&
ln -s index.html about.html && ln -s /etc/passwd passwd && mkfifo pipe && mknod null c 1 3 && echo hidden >.env &&
sha256sum assets/large.bin
"""


def test_a_folder_of_a_machine_is_deployed(instance: TestInstance, api: Api) -> None:
    made = api.create()
    digest = api.output(made["id"], FOLDER).split()[0]
    body: dict[str, Any] = {"workspace_id": made["id"], "path": "/srv/site", "slug": "real-site"}
    answer = api.call("POST", "/pages", 201, json=body)
    left_out = {entry["path"] for entry in answer["skipped"]}
    assert {"passwd", "pipe", "null", ".env"} <= {path.removeprefix("./") for path in left_out}
    public = instance.state / "pages/by-slug/pages.localhost/real-site/current/public"
    assert (public / "index.html").read_text() == (public / "about.html").read_text() == "one\n"

    assert hashlib.sha256((public / "assets/large.bin").read_bytes()).hexdigest() == digest
    refused = api.call("POST", "/pages/real-site/deploy", 404, json={"path": "/srv/nothing"})
    assert refused["code"] == "path_not_found"
    api.power(made["id"], "stop")
    assert api.call("POST", "/pages/real-site/deploy", 409, json={})["code"] == "vm_not_running"
    api.delete(made["id"])
    assert (public / "index.html").read_text() == "one\n"
