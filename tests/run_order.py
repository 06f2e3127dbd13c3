"""The order in which files of tests are given to the processes of a run: those that take longest first.

A file is one process's. If a long one came last, one process would be left with it while the others had nothing to do.
Files of tests/vm come before all others: their instance, which uses a twentieth of a core while idle, ends with the
last of them (scope `package`).
"""

from __future__ import annotations

import pytest

# By their measured seconds, the longest first; files that take less than half a minute are not worth a line.
LONG = (
    # With machines.
    "vm/test_faults.py",
    "vm/test_full_disk.py",
    "vm/test_power.py",
    "vm/test_sleep.py",
    "vm/test_death.py",
    "vm/test_commands.py",
    "vmbackend/test_guest_kit.py",
    "several_hosts/test_two_hosts.py",
    "vmbackend/test_stale_disk_deaths.py",
    "vmbackend/test_snapshot_deaths.py",
    "vmbackend/test_flatten_deaths.py",
    "vm/test_backup.py",
    "vmbackend/test_libvirt_death.py",
    "vmbackend/test_workloads.py",
    "vmbackend/test_hostile_copies.py",
    "vmbackend/test_hostile_layers.py",
    "vmbackend/test_parent_and_child.py",
    "vmbackend/test_copy_histories.py",
    "vmbackend/test_sleep_contract.py",
    "vm/test_files.py",
    "vm/test_pool.py",
    "vmbackend/test_libvirt_sleep.py",
    "vmbackend/test_guest_ssh.py",
    "vm/test_edge.py",
    "vm/test_logs.py",
    "vm/test_hold_deaths.py",
    "vm/test_file_places.py",
    "vmbackend/test_driver_power.py",
    "vm/test_pages.py",
    "vm/test_cli.py",
    "vmbackend/test_driver_contract.py",
    # Without.
    "workspaces/faults/test_table.py",
    "served/test_cdn_uploads.py",
    "served/test_custom_domain.py",
    "served/test_hooks.py",
    "workspaces/charging/test_day.py",
    "workspaces/model/test_model.py",
    "pages/test_killed_changes.py",
    "cdn/test_media_killed.py",
    "workspaces/charging/test_model.py",
    "workspaces/test_transitions.py",
    "cdn/test_s3_delivery.py",
    "test_recipe.py",
    "cdn/test_hostile_files.py",
    "test_requests.py",
    "sandboxes/sockets/test_slow_clients.py",
    "test_routes.py",
    "workspaces/usage/test_killed_vmhost_bound.py",
    "workspaces/usage/test_usage_api.py",
    "vmbackend/test_watch_events.py",
    "commands/test_run.py",
    "common/sse/test_processes.py",
    "served/test_browser.py",
    "console/pages/test_screens.py",
    "console/pages/test_pages.py",
    "console/pages/test_lists.py",
    "commands/test_edge_restarts.py",
    "assist/test_real_model.py",
    "cdn/test_stores.py",
    "sandboxes/sockets/test_page.py",
    "sandboxes/sockets/test_screens.py",
    "commands/test_edge_sandboxes.py",
    "workspaces/usage/test_counting_failures.py",
)
_PLACES = {f"tests/{name}": place for place, name in enumerate(LONG)}
INSTANCE = "tests/vm/"
# Its process goes on with files of another folder, which share the internet with it: without its instance.
LAST_WITH_INSTANCE = f"{INSTANCE}test_network.py"


def files_sort(items: list[pytest.Item]) -> None:
    """In place; tests of one file keep their order, and so do files that are not long."""
    items.sort(key=lambda item: _place(item.nodeid.partition("::")[0]))


def _place(file: str) -> tuple[bool, bool, int]:
    return not file.startswith(INSTANCE), file == LAST_WITH_INSTANCE, _PLACES.get(file, len(LONG))
