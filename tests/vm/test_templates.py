"""Boot templates in a whole instance: who starts from one, and what kills and upgrades do to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.vm.client import Api, until
from tests.vm.instances import TestInstance, new_instance
from vmbackend.libvirt.store import FOLDER

pytestmark = pytest.mark.vm
WHO = """
cat /proc/sys/kernel/random/boot_id /etc/machine-id /sys/class/net/eth0/address 2>/dev/null
hostname; hostname -i
"""


@pytest.fixture(scope="module")
def templated() -> Iterator[TestInstance]:
    with new_instance(PLATFORM_BOOT_TEMPLATES="2") as made:
        made.start()
        yield made


@pytest.fixture
def api(templated: TestInstance) -> Iterator[Api]:
    made = templated.api()
    yield made
    templated.wait_until_running()
    made.delete_all(keep=[])


def names_of(instance: TestInstance) -> set[str]:
    return {path.name for path in (instance.settings.machines_dir / FOLDER).glob("boot_*")}


def make_template(instance: TestInstance, api: Api) -> None:
    """Have a template for the machines that the tests make by default."""
    if not names_of(instance):
        api.create()
        until(lambda: names_of(instance), 180, "a template is made")


def test_creates_and_starts_begin_from_a_template_and_share_nothing(templated: TestInstance, api: Api) -> None:
    make_template(templated, api)
    one, other = api.create(), api.create(disk_size_mb=2048)
    assert (one["started_from"], other["started_from"]) == ("template", "template")
    mine, theirs = (api.output(made["id"], WHO).split() for made in (one, other))
    assert set(mine).isdisjoint(theirs)
    assert mine[-1] == one["ip"]
    api.output(one["id"], "echo kept > /root/kept; sync")
    api.power(one["id"], "stop")
    assert api.power(one["id"], "start")["started_from"] == "template"
    assert api.output(one["id"], "cat /root/kept").strip() == "kept"
    assert api.output(one["id"], WHO).split()[0] != mine[0], "another boot"
    assert api.power(one["id"], "restart")["started_from"] == "template"


@pytest.mark.parametrize("step", ["start_machine", "wait_ready"])
def test_vmhost_dies_while_a_machine_is_loaded(templated: TestInstance, api: Api, step: str) -> None:
    make_template(templated, api)
    with templated.held(f"create.{step}"):
        made = api.begin_create()
        templated.wait_for_step(made, f"create.{step}")
        templated.kill("vmhost")
    assert api.settles(made)["status"] == "running"
    assert api.output(made, "hostname -i").strip() == api.get(made)["ip"]


def test_templates_outlive_a_restart_and_those_of_other_memory_do_not_fit(templated: TestInstance, api: Api) -> None:
    make_template(templated, api)
    before = names_of(templated)
    templated.stop()
    templated.start()
    assert api.create()["started_from"] == "template"
    assert api.create(memory_mb=384)["started_from"] == "boot"
    assert before <= names_of(templated)
