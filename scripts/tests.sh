#!/usr/bin/env bash
# Tests without machines, then those with machines or the host's network; a file is one process's.
# Options, before all other arguments, which go to pytest (paths, -k, ...):
#   --fast       none that boots a machine
#   --campaigns  only campaigns, which are left out otherwise (docs/testing.md); TEST_ALL=1 leaves none out
# TEST_TIMES names a file to which each part's and each test's seconds are appended.
# Where one or two tests of a part failed, they are repeated once, alone: docs/testing.md has why. What passes then is named.
set -uo pipefail
trap 'exit 130' INT TERM HUP

machines="host or vm"
campaigns="not campaign and "
while :; do
    case "${1:-}" in
        --fast) machines="host and not vm" ;;
        --campaigns) campaigns="campaign and " ;;
        *) break ;;
    esac
    shift
done
[ -z "${TEST_ALL:-}" ] || campaigns=${campaigns#not campaign and }

# Many processes import the same modules, and pytest rewrites those with tests: once, and not once in each process.
unset PYTHONDONTWRITEBYTECODE
processes=$((2 * $(nproc))) # tests also wait: three on two cores used two thirds of them
failures=.pytest_cache/v/cache/lastfailed
repeated_at_most=2
# A file is one process's, in the order of tests/run_order.py.
files=(--dist loadfile --no-loadscope-reorder)
status=5 # of pytest: no test was collected

# Succeeds where few tests failed and each passes alone.
passes_alone() {
    local names count
    names=$(.venv/bin/python -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$failures") || return 1
    count=$(wc -l <<<"$names")
    [ "$count" -le "$repeated_at_most" ] || return 1
    echo "== $count failed; repeated alone"
    .venv/bin/python -m pytest --last-failed "$@" -n 0 || return 1
    while read -r name; do
        echo "UNSTABLE: failed beside others, passed alone: $name"
        printf 'unstable\t%s\t%s\n' "$TEST_PART" "$name" >>"${TEST_TIMES:-/dev/null}"
    done <<<"$names"
}

run() {
    export TEST_PART=$1
    shift
    local begun=$SECONDS code=0
    rm -f "$failures"
    .venv/bin/python -m pytest "$@" || code=$?
    if [ "$code" -eq 1 ] && passes_alone "$@"; then
        code=0
    fi
    printf 'part\t%s\t%s\n' $((SECONDS - begun)) "$TEST_PART" >>"${TEST_TIMES:-/dev/null}"
    [ "$code" -ne 2 ] || exit 2 # interrupted
    if [ "$status" -eq 5 ] || { [ "$status" -eq 0 ] && [ "$code" -ne 5 ]; }; then
        status=$code
    fi
}

run "without machines" -m "${campaigns}not vm and not host" -n "$processes" "${files[@]}" "$@"
# Each process has an instance of its own. Two left the cores of a machine with two idle for a quarter of the time.
run "machines and host" -m "${campaigns}($machines)" -n 3 "${files[@]}" "$@"
if [ "$status" -eq 5 ] && [ -n "$campaigns" ]; then
    echo "No test of this target is among those. Campaigns are those of make test-campaigns, all others those of make test." >&2
fi
exit "$status"
