"""How tests are spread over processes (`-n 2 --dist loadfile`): a file's tests stay in one process, in the order of
`tests/run_order.py`.

A file's tests share machines and instances; the files of one group share a resource of the host.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.run_order import files_sort

# Folder or file -> group. The first two make a network namespace whose addresses depend on an instance's id; those of
# tests/served share an instance.
GROUPS = {"tests/vm/test_network.py": "internet", "tests/vmbackend/policy/": "internet", "tests/served/": "served"}


@pytest.hookimpl(trylast=True)  # pytest-django has sorted them by their use of the database
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files_sort(items)


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
