"""Pages from real machines: the kit's tar, a folder with all that a file system may have, a site as visitors see it."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.vm.browser import browser
from tests.vm.client import Api, until
from tests.vm.instances import TestInstance
from tests.vm.onhost import machine_pids
from tests.vm.site_load import visitors

pytestmark = pytest.mark.vm

FOLDER = """
mkdir -p /srv/site/assets && cd /srv/site && echo one >index.html && head -c 3000000 /dev/urandom >assets/large.bin &&
ln -s index.html about.html && ln -s /etc/passwd passwd && mkfifo pipe && mknod null c 1 3 && echo hidden >.env &&
syslogd -O /dev/null && sleep 1 && mv /dev/log app.sock && sha256sum assets/large.bin
"""


def test_a_folder_of_a_machine_is_deployed(instance: TestInstance, api: Api) -> None:
    made = api.create()
    digest = api.output(made["id"], FOLDER).split()[0]
    body: dict[str, Any] = {"workspace_id": made["id"], "path": "/srv/site", "slug": "real-site"}
    answer = api.call("POST", "/pages", 201, json=body)
    left_out = {entry["path"] for entry in answer["skipped"]}
    assert {"passwd", "pipe", "null", ".env", "app.sock"} <= {path.removeprefix("./") for path in left_out}
    public = instance.state / "pages/by-slug/pages.localhost/real-site/current/public"
    assert (public / "index.html").read_text() == (public / "about.html").read_text() == "one\n"

    assert hashlib.sha256((public / "assets/large.bin").read_bytes()).hexdigest() == digest
    refused = api.call("POST", "/pages/real-site/deploy", 404, json={"path": "/srv/nothing"})
    assert refused["code"] == "path_not_found"
    # Its header is enough: ten gigabytes would take minutes to send.
    api.output(made["id"], "mkdir /srv/giant && truncate -s 10G /srv/giant/film.bin")
    giant = api.call("POST", "/pages/real-site/deploy", 413, json={"path": "/srv/giant"})
    assert (giant["details"]["limit"], giant["details"]["path"]) == ("file_bytes", "film.bin")
    api.power(made["id"], "stop")
    assert api.call("POST", "/pages/real-site/deploy", 409, json={})["code"] == "vm_not_running"
    api.delete(made["id"])
    assert (public / "index.html").read_text() == "one\n"


LARGE = "mkdir -p /srv/large && cd /srv/large && for n in 1 2 3 4; do head -c 12000000 /dev/zero >$n.bin; done"


def test_a_machine_that_is_killed_in_the_middle_of_an_export_fails_the_deploy_alone(
    instance: TestInstance, api: Api
) -> None:
    made = api.create(memory_mb=256, disk_size_mb=128)["id"]
    api.output(made, f"mkdir -p /srv/small && echo one >/srv/small/index.html && {LARGE} && cp /srv/small/* .")
    api.call("POST", "/pages", 201, json={"workspace_id": made, "path": "/srv/small", "slug": "killed"})
    incoming = instance.state / "pages/incoming"
    answers: list[httpx.Response] = []

    def deploy() -> None:
        answers.append(api.http.request("POST", "/pages/killed/deploy", json={"path": "/srv/large"}))

    thread = threading.Thread(target=deploy)
    thread.start()
    until(lambda: sum(path.stat().st_size for path in incoming.rglob("*.bin")) > 1 << 20, 30, "the export is under way")
    os.kill(machine_pids(instance)[made], signal.SIGKILL)
    thread.join(90)
    answer = answers[0].json()
    assert (answers[0].status_code, answer["code"]) in [(409, "vm_not_running"), (503, "VM_UNAVAILABLE")], answer
    assert answer["message"]
    page = api.call("GET", "/pages/killed")["page"]
    assert (page["release"], page["deployment"]["state"]) == (1, "failed")
    assert _status(instance.instance.port, str(urlsplit(page["url"]).hostname)) == 200
    until(lambda: not list(incoming.iterdir()), 15, "what was received is removed")
    api.call("DELETE", "/pages/killed")
    api.delete(made)


# As bundlers do: a program with the hash of its content in its name, and a part of it that is loaded later.
BUILD = """
rm -rf /srv/shop && mkdir -p /srv/shop/assets && cd /srv/shop/assets &&
printf "export const part = '%s'\\n" {0} >part.js &&
part=part-$(sha256sum part.js | head -c 8).js && mv part.js $part &&
{{ printf "export const release = '%s'\\n" {0} &&
echo "window.later = () => import('/assets/$part').then(found => found.part)" &&
for line in $(seq 1 300); do echo "// $line of {0}"; done && echo "// end"; }} >app.js &&
app=app-$(sha256sum app.js | head -c 8).js && mv app.js $app &&
echo "<title>release {0}</title><script type=module src=/assets/$app></script>" >../index.html
"""
RATE = 500.0


def test_a_site_is_built_visited_replaced_under_load_rolled_back_renamed_and_deleted(
    instance: TestInstance, api: Api
) -> None:
    made = api.create()["id"]
    api.output(made, BUILD.format("one"))
    body = {"workspace_id": made, "path": "/srv/shop", "slug": "the-shop"}
    page: dict[str, Any] = api.call("POST", "/pages", 201, json=body)["page"]
    port, host = instance.instance.port, str(urlsplit(page["url"]).hostname)
    with browser() as chromium:
        tab = chromium.open(page["url"])
        assert tab.value("document.title") == "release one"
        api.output(made, BUILD.format("two"))
        with visitors(port, host, RATE) as seen:
            until(lambda: seen.by_release["one"] > 100, 30, "visitors see the first release")
            assert api.call("POST", "/pages/the-shop/deploy", 200, json={})["page"]["release"] == 2
            until(lambda: seen.by_release["two"] > 100, 30, "visitors see the second release")
            api.call("POST", "/pages/the-shop/rollback", 200, json={"release": 1})
            until(lambda: seen.by_release["one"] > 300, 30, "visitors see the first release again")
            api.call("POST", "/pages/the-shop/rollback", 200, json={"release": 2})
        assert seen.wrong == []
        # The part of the first release is loaded by the tab alone, after the switch.
        assert tab.value("window.later()") == "one"
        new = chromium.open(page["url"])
        assert (new.value("document.title"), new.value("window.later()")) == ("release two", "two")
        renamed = api.call("PUT", "/pages/the-shop", 200, json={"slug": "the-market"})["page"]
        assert chromium.open(renamed["url"]).value("document.title") == "release two"
        assert _status(port, host) == 404
    api.delete(made)
    market = str(urlsplit(renamed["url"]).hostname)
    assert _status(port, market) == 200
    api.call("DELETE", "/pages/the-market")
    assert _status(port, market) == 404


def _status(port: int, host: str) -> int:
    return httpx.get(f"http://127.0.0.1:{port}/", headers={"Host": host}, trust_env=False).status_code
