"""`python -m tests.hosts.start STATE PORT ID [PROCESS ...]`: starts an instance in the namespaces of the caller, or
only some of its processes. They have this id as theirs, which is the prefix of their keys in Redis.
"""

from __future__ import annotations

import sys
from typing import Any

from supervise import control
from supervise.configuration import process_environment
from supervise.instance import load_instance
from supervise.processes import processes


def main(state: str, port: str, shared_id: str, *names: str) -> None:
    """Start the supervisor, which outlives this process."""
    instance = load_instance(state, port)
    settings = instance.settings()
    chosen = [process for process in processes(instance, settings) if not names or process.name in names]

    def environment(*given: Any, **options: Any) -> dict[str, str]:
        return process_environment(*given, **options) | {"PLATFORM_INSTANCE": shared_id}

    control.processes, control.process_environment = (lambda *_: chosen), environment  # type: ignore[attr-defined]
    with control.exclusive_control(instance):
        control.start_supervisord(instance, settings, tied=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
