"""What of an image's configuration and of its conversion reaches the machine."""

from __future__ import annotations

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from vmbackend.bootlog import split_timestamp
from vmbackend.driver import Boot
from vmbackend.images.types import ImageConfig

pytestmark = pytest.mark.django_db(transaction=True)
CHANGE = "left out: 1 device nodes with unusual names or numbers: /a b"


def created(api: Caller) -> str:
    workspace_id: str = api.post("/workspace", {"image": "localhost/other:1"}).json()["workspace"]["id"]
    return workspace_id


def boot_of(vmhost: FakeHost, workspace_id: str) -> Boot:
    return vmhost.driver._store.domains()[workspace_id].spec.boot


@pytest.mark.parametrize(
    ("given", "taken"),
    [("/", "/"), ("/srv", "/srv"), ("app/", "/app"), ("./a/../b//c", "/b/c"), ("../../etc", "/etc"), ("//x", "/x")],
)
def test_a_working_directory_is_an_absolute_path(api: Caller, vmhost: FakeHost, given: str, taken: str) -> None:
    vmhost.images.config = ImageConfig(working_dir=given)
    boot = boot_of(vmhost, created(api))
    assert (boot.working_dir, boot.directories) == (taken, (taken,))


def test_without_a_working_directory_no_folder_is_made(api: Caller, vmhost: FakeHost) -> None:
    boot = boot_of(vmhost, created(api))
    assert (boot.working_dir, boot.directories) == ("", ())


def test_the_folders_of_volumes_are_made_too(api: Caller, vmhost: FakeHost) -> None:
    vmhost.images.config = ImageConfig(working_dir="/srv", volumes=("/data/", "/srv", "cache"))
    assert boot_of(vmhost, created(api)).directories == ("/srv", "/data", "/cache")


def test_what_a_conversion_changed_begins_the_boot_log(api: Caller, vmhost: FakeHost) -> None:
    vmhost.images.changes = (CHANGE,)
    workspace_id = created(api)
    lines = vmhost.driver.boot_log(workspace_id).read_bytes().splitlines()
    assert [split_timestamp(line)[1] for line in lines] == [b"image: " + CHANGE.encode(), b"booted"]
    api.post(f"/workspace/{workspace_id}/restart")
    vmhost.settle()
    again = vmhost.driver.boot_log(workspace_id).read_bytes()
    assert (again.count(b"image: "), again.count(b"booted")) == (1, 2), "once in a log, not at each start"
