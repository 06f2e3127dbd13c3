"""`python -m tests.chaos --minutes M --seed N`: exit code 1 where a violation was found (docs/testing.md, Chaos)."""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
from pathlib import Path

from tests.chaos.faults import FAULTS
from tests.chaos.report import Report
from tests.chaos.run import Run
from tests.chaos.world import new_world


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description="Faults, clients and invariants on a real instance.")
    parser.add_argument("--minutes", type=float, default=5.0, help="of the run, without the start of the instance")
    parser.add_argument("--seed", type=int, help="of the schedule; random where it is left out")
    parser.add_argument("--faults", default="", help="a regular expression: only the faults whose names it matches")
    parser.add_argument("--logs", type=Path, help="a folder into which the logs of the instance are copied")
    parser.add_argument("--list", action="store_true", help="list the faults and end")
    given = parser.parse_args()
    kinds = [kind for kind in FAULTS if re.search(given.faults, kind)]
    if given.list or not kinds:
        sys.stdout.write("\n".join([*FAULTS, ""]))
        return 0 if given.list else 2
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    report = Report()
    report.say(f"seed {seed}")
    with new_world(report, seed) as world:
        report.say(f"instance {world.instance.id} in {world.instance.state}")
        try:
            Run(world, seed=seed, seconds=given.minutes * 60, kinds=kinds).carry_out()
        except (Exception, KeyboardInterrupt) as error:
            report.record_check("the run comes to its end", [repr(error)])
        finally:
            report.add_log_errors(world.instance.instance.log_dir)
            if given.logs:
                shutil.copytree(world.instance.instance.log_dir, given.logs, dirs_exist_ok=True)
            report.say(report.summary())
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
