#!/usr/bin/env bash
# All tests: those that need nothing of the host on every core, then one after another those that share its network and
# tools, and those with machines, of which each wants a core to itself. `--fast` as the first argument: none with
# machines. All other arguments go to pytest (paths, -k, ...).
set -uo pipefail
trap 'exit 130' INT TERM HUP

fast=
if [ "${1:-}" = --fast ]; then
    fast=yes
    shift
fi

status=5 # of pytest: no test was collected
run() {
    .venv/bin/python -m pytest "$@"
    local code=$?
    [ "$code" -ne 2 ] || exit 2 # interrupted
    if [ "$status" -eq 5 ] || { [ "$status" -eq 0 ] && [ "$code" -ne 5 ]; }; then
        status=$code
    fi
}

run -m "not vm and not host" -n auto --dist loadfile "$@"
if [ -n "$fast" ]; then run -m "host and not vm" "$@"; else run -m "host or vm" "$@"; fi
exit "$status"
