"""Guests that send slowly, stop, die or lie in the middle of an export: what the deploy gets, and what others get."""

from __future__ import annotations

import fcntl
import os
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from django.utils import timezone

from pages.deploys import places, queue, steps, sweep, worker
from pages.models import PageDeploy
from pages.releases.store import PageStore
from pages.states import DeployState
from tests.pages.archives import END, archive_of, entry, header
from tests.pages.conftest import Site
from tests.pages.stores import left_files
from tests.threads import wait_until
from workspaces import guests
from workspaces.models import Workspace
from workspaces.power import workspace_sleep
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
Served = Callable[[str], str | None]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds takes moments."""
    monkeypatch.setattr(steps, "SLOW_SECONDS", 0.1)
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.1)


class Pipe:
    """What the guest sends in place of the folder, as the test writes it."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        self._path = path
        self._fd = os.open(path, os.O_RDWR)

    def send(self, data: bytes) -> None:
        os.write(self._fd, data)

    def wait_until_read(self) -> None:
        wait_until(lambda: fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)) == bytes(4))

    def give_folder(self) -> None:
        """What is exported afterwards is the folder again."""
        self._path.unlink(missing_ok=True)

    def end(self) -> None:
        self.give_folder()
        os.close(self._fd)


@pytest.fixture
def pipe(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """The page `abc` is live, and its next deploy receives what the test writes."""
    site.create(slug="abc")
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"deploy_wait_seconds": 0}))
    made = Pipe(site.archive)
    yield made
    made.end()


def step_of(deploy: PageDeploy) -> tuple[str, str]:
    deploy.refresh_from_db()
    return deploy.state, deploy.step


def begin_deploy(site: Site, store: PageStore) -> PageDeploy:
    assert site.deploy("abc").status_code == 202
    wait_until(lambda: any((store.root / "incoming").iterdir()))
    return PageDeploy.objects.get(state=DeployState.RUNNING)


def test_an_export_that_takes_long_goes_on_without_a_place(
    vmhost: Any, site: Site, store: PageStore, pipe: Pipe, served: Served
) -> None:
    deploy = begin_deploy(site, store)
    data = archive_of({"index.html": b"two"})
    pipe.send(data[:1])
    wait_until(lambda: step_of(deploy) == (DeployState.RUNNING, places.SLOW_EXPORT))
    assert served("abc") == "one"
    pipe.send(data[1:])
    vmhost.settle()
    assert (step_of(deploy)[0], served("abc")) == (DeployState.SUCCEEDED, "two")


@pytest.mark.parametrize("sent", [b"", header("index.html", 99)], ids=["nothing", "in the middle of a file"])
def test_a_guest_that_stops_sending_ends_with_the_deadline(
    vmhost: Any, site: Site, store: PageStore, pipe: Pipe, served: Served, sent: bytes
) -> None:
    begin_deploy(site, store)
    pipe.send(sent)
    PageDeploy.objects.filter(state=DeployState.RUNNING).update(deadline_at=timezone.now())
    assert sweep.deploys_expire() == 1
    vmhost.settle()
    shown = site.api.get("/pages/abc").json()["page"]
    assert (shown["deployment"]["error"]["code"], shown["release"]) == ("deadline_exceeded", 1)
    assert served("abc") == "one"
    assert not any((store.root / "incoming").iterdir())


def test_a_page_that_is_deleted_ends_the_export_of_a_guest_that_sends_nothing(
    vmhost: Any, site: Site, store: PageStore, pipe: Pipe
) -> None:
    begin_deploy(site, store)
    assert site.api.delete("/pages/abc").status_code == 200
    vmhost.settle()
    assert left_files(store) == []


@pytest.mark.parametrize("route", ["stop", "pause", "sleep"])
def test_a_workspace_that_stops_running_ends_the_export(
    vmhost: Any, site: Site, store: PageStore, pipe: Pipe, served: Served, route: str
) -> None:
    deploy = begin_deploy(site, store)
    pipe.send(header("index.html", 99))
    leave_running(site, route)
    vmhost.settle()
    deploy.refresh_from_db()
    assert (deploy.state, deploy.error_code, deploy.attempt) == (DeployState.FAILED, "vm_not_running", 1)
    assert served("abc") == "one"
    assert not any((store.root / "incoming").iterdir())


def test_an_export_ends_with_its_machine_also_where_nothing_comes_from_there(
    vmhost: Any, site: Site, store: PageStore, pipe: Pipe, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a machine is killed: its connections stay open until they are given up."""
    monkeypatch.setattr(guests, "LOOK_SECONDS", 0.1)
    deploy = begin_deploy(site, store)
    pipe.send(header("index.html", 99))
    Workspace.objects.filter(pk=site.workspace_id).update(status=Status.STOPPED, ready=False)
    vmhost.settle()
    deploy.refresh_from_db()
    assert (deploy.state, deploy.error_code, deploy.attempt) == (DeployState.FAILED, "vm_not_running", 1)
    assert served("abc") == "one"


def leave_running(site: Site, route: str) -> None:
    if route == "sleep":
        workspace_sleep(workspace=Workspace.objects.get(), actor="a test")
    else:
        assert site.api.post(f"/workspace/{site.workspace_id}/{route}").status_code == 200


def test_a_workspace_that_is_installed_again_has_no_folder_any_more(
    vmhost: Any, site: Site, store: PageStore, pipe: Pipe, served: Served
) -> None:
    deploy = begin_deploy(site, store)
    pipe.send(header("index.html", 99))
    pipe.wait_until_read()
    pipe.give_folder()
    assert site.api.post(f"/workspace/{site.workspace_id}/reinstall").status_code == 200
    vmhost.settle()
    deploy.refresh_from_db()
    # By whether the machine runs again by then.
    assert deploy.error_code in ("vm_not_running", "path_not_found")
    assert served("abc") == "one"


def test_a_machine_that_dies_in_an_export_is_exported_again_and_then_given_up(
    vmhost: Any, site: Site, store: PageStore, pipe: Pipe, served: Served
) -> None:
    deploy = begin_deploy(site, store)
    pipe.send(header("index.html", 99))
    vmhost.driver.kill(site.workspace_id)
    vmhost.settle()
    deploy.refresh_from_db()
    assert (deploy.state, served("abc")) == (DeployState.FAILED, "one")
    assert deploy.error_code in ("VM_UNAVAILABLE", "vm_not_running")
    assert not any((store.root / "incoming").iterdir())


def test_a_damaged_archive_is_asked_for_again_after_a_pause_without_a_place(
    vmhost: Any, site: Site, store: PageStore, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.create(slug="abc")
    fields = {"deploy_wait_seconds": 0, "retry_seconds": 60}
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update=fields))
    site.archive.write_bytes(b"x" * 700)
    assert site.deploy("abc").status_code == 202
    wait_until(lambda: PageDeploy.objects.filter(step=places.RETRY_PAUSE, state=DeployState.RUNNING).exists())
    assert not any((store.root / "incoming").iterdir())
    PageDeploy.objects.filter(state=DeployState.RUNNING).update(deadline_at=timezone.now())
    sweep.deploys_expire()
    vmhost.settle()
    assert PageDeploy.objects.get(state=DeployState.FAILED).attempt == 1
    assert served("abc") == "one"


def test_what_is_sent_after_the_end_is_not_read(
    vmhost: Any, site: Site, store: PageStore, pipe: Pipe, served: Served
) -> None:
    begin_deploy(site, store)
    pipe.send(entry("index.html", b"two") + END + entry("index.html", b"three"))
    vmhost.settle()
    assert served("abc") == "two"


def test_an_attempt_that_has_lost_its_claim_disturbs_the_next_one_in_nothing(
    vmhost: Any, site: Site, store: PageStore, pipe: Pipe, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the host was suspended: the sweep is quicker than the attempt that goes on."""
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 60.0)
    deploy = begin_deploy(site, store)
    stale = archive_of({"index.html": b"stale"})
    pipe.send(stale[:1])
    pipe.wait_until_read()  # it has opened this pipe, and not the one that follows
    pipe.give_folder()
    following = Pipe(site.archive)
    PageDeploy.objects.filter(pk=deploy.pk).update(lease_until=timezone.now())
    assert sweep.deploys_continue() == 1
    wait_until(lambda: PageDeploy.objects.filter(attempt=2, step__in=("export", places.SLOW_EXPORT)).exists())
    following.send(header("index.html", 3))
    following.wait_until_read()
    incoming = store.root / "incoming"
    wait_until(lambda: (incoming / PageDeploy.objects.get(pk=deploy.pk).claim).exists())
    pipe.send(stale[1:])
    wait_until(lambda: len(list(incoming.iterdir())) == 1)
    following.send(b"two".ljust(512, b"\0") + END)
    vmhost.settle()
    following.end()
    assert (step_of(deploy)[0], served("abc")) == (DeployState.SUCCEEDED, "two")
    assert not any(incoming.iterdir())


def test_heartbeats_hold_no_connection_between_them(
    vmhost: Any, site: Site, store: PageStore, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew, of_the_threads = queue.renew_lease, []

    def renewed(deploy: PageDeploy) -> None:
        of_the_threads.append(connections["default"])
        renew(deploy)

    monkeypatch.setattr(queue, "renew_lease", renewed)
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.5)
    begin_deploy(site, store)
    wait_until(lambda: of_the_threads and of_the_threads[-1].connection is None)
    pipe.send(archive_of({"index.html": b"two"}))
    vmhost.settle()
