"""`python -m tests.upgrade REF`: exit code 1 where something does not hold (docs/testing.md, Upgrade)."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from supervise.files import read_env_file
from supervise.instance import ROOT
from tests.chaos.report import Report
from tests.free_ports import free_port
from tests.upgrade.checks import CHECKS, LeftOut, Upgraded
from tests.upgrade.release import Release, commit_of, has_same_guest_kit, made_release
from tests.upgrade.workspaces import Workspaces, credits_of, make_workspaces
from tests.vm.client import Api
from tests.vm.images import BUSYBOX, add_images
from tests.vm.instances import TestInstance, watched
from tests.vm.onhost import machine_pids


class Run:
    """One upgrade, in a folder of its own."""

    def __init__(self, commit: str, folder: Path, report: Report) -> None:
        self.commit, self.folder, self.report = commit, folder, report
        self.port = free_port()
        self.settings = {
            # Both releases use the folder, as in an upgrade in place: the kit in it is replaced.
            "PLATFORM_CACHE_DIR": str(folder / "cache"),
            "PLATFORM_KIT_DIR": str(folder / "cache/kit"),
            "PLATFORM_DEFAULT_IMAGE": BUSYBOX,
            "PLATFORM_GUEST_DNS": "192.0.2.53",
            "PLATFORM_METERING_SECONDS": "10",
        }

    def carry_out(self, logs: Path | None) -> None:
        """Raises AssertionError where the earlier release, or the start of this one, fails."""
        release = made_release(self.commit, self.folder / "from")
        add_images(self.folder / "cache/images/oci", self.folder)
        own = {**self.settings, "STATE": str(self.folder / "s"), "PORT": str(self.port)}
        self.report.say(f"up at {self.commit[:10]} with {release.python}")
        release.command("up", settings=own)
        release.assert_runs(self.folder / "s")
        known = read_env_file(self.folder / "s/credentials.env")
        api = Api(known["BASE_URL"], known["CLIENT_ID"], known["CLIENT_SECRET"])
        begun_at = time.monotonic()
        made = make_workspaces(api, known["BASE_URL"])
        self._settle(release, own, api, made)
        down_at = time.monotonic()
        release.command("down", settings=own)
        instance = TestInstance(self.folder, port=self.port, **self.settings)
        pids = machine_pids(instance)
        self.report.say(f"down; {len(pids)} machines go on")
        try:
            started = instance.command("up")
            assert started.returncode == 0, started.stdout + started.stderr
            instance.wait_until_serving()
            Release(ROOT, Path(sys.executable)).assert_runs(instance.state)
            self.report.say("up at this checkout")
            down = time.monotonic() - down_at
            same = has_same_guest_kit(self.commit)
            self._check(
                Upgraded(instance, instance.api(), made, pids, begun_at, down, same, self.folder, time.monotonic)
            )
        finally:
            self.report.add_log_errors(instance.instance.log_dir)
            if logs:
                shutil.copytree(instance.instance.log_dir, logs, dirs_exist_ok=True)
            instance.remove()

    def _settle(self, release: Release, own: dict[str, str], api: Api, made: Workspaces) -> None:
        api.power(made.paused, "pause")
        api.power(made.stopped, "stop")
        release.command("manage", "--", "workspace_sleep", made.asleep, settings=own)
        api.reaches(made.asleep, "sleeping")
        made.credits = credits_of(api)
        self.report.say("workspaces run, sleep, are paused and stopped")

    def _check(self, upgraded: Upgraded) -> None:
        for check in CHECKS:
            name = check.__name__.replace("_", " ")
            try:
                check(upgraded)
            except LeftOut:
                self.report.say(f"left out, as the commit has no such thing: {name}")
            except Exception as error:
                self.report.record_check(name, [repr(error)])
                traceback.print_exc()
            else:
                self.report.record_check(name, [])
                self.report.say(f"holds: {name}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="upgrade", description="Machines of an earlier commit, with this code.")
    parser.add_argument("reference", help="a commit, tag or branch whose instance is upgraded")
    parser.add_argument("--logs", type=Path, help="a folder into which the logs of the instance are copied")
    given = parser.parse_args()
    try:
        commit = commit_of(given.reference)
    except ValueError as error:
        parser.error(str(error))
    report = Report()
    # Short: socket paths have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="mvi-", dir="/tmp"))
    # It ends what runs of either release, by its pids, also where this process is killed.
    with watched(folder):
        try:
            Run(commit, folder, report).carry_out(given.logs)
        except (Exception, KeyboardInterrupt) as error:
            traceback.print_exc()
            report.record_check("the run comes to its end", [repr(error)])
    for text, count in report.log_errors.most_common():
        report.say(f"in the logs: {count} {text}")
    report.say(f"{report.checks.total()} checks, {len(report.violations)} do not hold")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
