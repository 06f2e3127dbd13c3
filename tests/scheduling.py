"""How tests are spread over processes (`-n 2 --dist loadfile`): a file's tests stay in one process, the longest first.

A file's tests share machines and instances; the files of one group share a resource of the host.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

# Folder or file -> group. The first two make a network namespace whose addresses depend on an instance's id; those of
# tests/served share an instance.
GROUPS = {"tests/vm/test_network.py": "internet", "tests/vmbackend/policy/": "internet", "tests/served/": "served"}
# A long file that comes last leaves the other cores idle.
LONGEST_FIRST = (
    "tests/vm/test_faults.py",
    "tests/vmbackend/test_guest_kit.py",
    "tests/vm/test_sleep.py",
    "tests/vmbackend/test_workloads.py",
    "tests/vm/test_power.py",
    "tests/vm/test_death.py",
    "tests/vmbackend/test_driver_contract.py",
    "tests/vmbackend/test_sleep_contract.py",
    "tests/vm/test_files.py",
    "tests/vmbackend/test_libvirt_sleep.py",
    "tests/vm/test_network.py",
    "tests/vm/test_commands.py",
    "tests/workspaces/faults/test_table.py",
    "tests/workspaces/charging/test_day.py",
    "tests/workspaces/charging/test_model.py",
    "tests/sandboxes/sockets/test_page.py",
    "tests/workspaces/model/test_model.py",
    "tests/served/test_hooks.py",
    "tests/test_requests.py",
    "tests/test_recipe.py",
    "tests/common/sse/test_processes.py",
)


class GroupScheduling(LoadFileScheduling):
    """Whole files, and whole groups of files, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((group for prefix, group in GROUPS.items() if file.startswith(prefix)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order does not depend on the process: all of them must collect the same."""
    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))
