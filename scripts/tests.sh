#!/usr/bin/env bash
# All tests: those without machines, then those with machines or the host's network; a file is one process's.
# Options, before all other arguments, which go to pytest (paths, -k, ...):
#   --fast  none that boots a machine
#   --rows  only those that read or write rows, for the second database
# TEST_TIMES names a file to which each part's and each test's seconds are appended.
set -uo pipefail
trap 'exit 130' INT TERM HUP

machines="host or vm"
rows=
while :; do
    case "${1:-}" in
        --fast) machines="host and not vm" ;;
        --rows) rows="rows and " ;;
        *) break ;;
    esac
    shift
done
case "${PLATFORM_DATABASE_URL:-}" in
    postgres*) database=PostgreSQL ;;
    *) database=SQLite ;;
esac

# Many processes import the same modules, and pytest rewrites those with tests: once, and not once in each process.
unset PYTHONDONTWRITEBYTECODE
processes=$(($(nproc) + 1)) # tests also wait
status=5 # of pytest: no test was collected
run() {
    export TEST_PART="$database, $1"
    shift
    local begun=$SECONDS
    .venv/bin/python -m pytest "$@"
    local code=$?
    printf 'part\t%s\t%s\n' $((SECONDS - begun)) "$TEST_PART" >>"${TEST_TIMES:-/dev/null}"
    [ "$code" -ne 2 ] || exit 2 # interrupted
    if [ "$status" -eq 5 ] || { [ "$status" -eq 0 ] && [ "$code" -ne 5 ]; }; then
        status=$code
    fi
}

run "without machines" -m "${rows}not vm and not host" -n "$processes" --dist loadfile "$@"
# Each process has an instance of its own; a third one on two cores lets guests miss their time limits.
run "machines and host" -m "${rows}($machines)" -n 2 --dist loadfile "$@"
exit "$status"
