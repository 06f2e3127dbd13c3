#!/usr/bin/env bash
# All tests: those without machines on every core, then those with machines, of which each wants a core to itself, one
# after another. `--fast` as the first argument: the former only. All other arguments go to pytest (paths, -k, ...).
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

run -m "not vm" -n auto --dist loadfile "$@"
[ -n "$fast" ] || run -m vm "$@"
exit "$status"
