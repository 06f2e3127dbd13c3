"""`python -m tests.several_hosts.start STATE PORT`: starts an instance in the namespaces of the caller."""

from __future__ import annotations

import sys

from supervise import control
from supervise.instance import load_instance


def main(state: str, port: str) -> None:
    """Start the supervisor, which outlives this process."""
    instance = load_instance(state, port)
    with control.exclusive_control(instance):
        control.start_supervisord(instance, instance.settings(), tied=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
