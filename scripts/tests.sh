#!/usr/bin/env bash
# All tests in two parts, those without machines and those with machines or the host's network; a file is one process's.
# On SQLite both run at once, as each waits for some of its time; the second one's output follows that of the first.
# Options, before all other arguments, which go to pytest (paths, -k, ...):
#   --fast  none that boots a machine
#   --rows  only those that read or write rows, for the second database
# TEST_TIMES names a file to which each part's and each test's seconds are appended.
# Where one or two tests of a part failed, they are repeated once, alone: docs/testing.md has why. What passes then is named.
set -uo pipefail

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
repeated_at_most=2
at_once_mib=6144 # that both parts need
# A file is one process's, in the order of tests/run_order.py.
files=(--dist loadfile --no-loadscope-reorder)
# Tests also wait: three processes on two cores used two thirds of them.
without=(-m "${rows}not vm and not host" -n "$((2 * $(nproc)))" "${files[@]}" "$@")
# Each process has an instance of its own; a third one on two cores gained nothing.
with=(-m "${rows}($machines)" -n 2 "${files[@]}" "$@")
lower=() # what the first part's command begins with, where both run
beside=  # pytest on the second part then
log=$(mktemp /tmp/mvm-tests.XXXXXX)

finish() {
    if [ -n "$beside" ]; then
        kill -TERM "$beside" 2>/dev/null && wait "$beside" # it ends its machines
    fi
    rm -f "$log"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

folder() { echo ".pytest_cache/${1// /-}"; }

# Becomes pytest on a part: its name, then the arguments. What failed is remembered for each part.
become_tests() {
    local name=$1
    shift
    TEST_PART="$database, $name" exec "${lower[@]}" .venv/bin/python -m pytest -o "cache_dir=$(folder "$name")" "$@"
}

note_part() { printf 'part\t%s\t%s\n' "$2" "$database, $1" >>"${TEST_TIMES:-/dev/null}"; }

# Succeeds where few tests of the part failed and each passes alone.
passes_alone() {
    local name=$1 names count
    names=$(.venv/bin/python -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' \
        "$(folder "$name")/v/cache/lastfailed") || return 1
    count=$(wc -l <<<"$names")
    [ "$count" -le "$repeated_at_most" ] || return 1
    echo "== $count failed; repeated alone"
    (become_tests "$@" --last-failed -n 0) || return 1
    while read -r failed; do
        echo "UNSTABLE: failed beside others, passed alone: $failed"
        printf 'unstable\t%s\t%s\n' "$database, $name" "$failed" >>"${TEST_TIMES:-/dev/null}"
    done <<<"$names"
}

# Where parts have ended: the code of each, of which 5 is that it had no test.
judge() {
    local code=$1
    shift
    if [ "$code" -eq 1 ] && passes_alone "$@"; then
        code=0
    fi
    if [ "$status" -eq 5 ] || { [ "$status" -eq 0 ] && [ "$code" -ne 5 ]; }; then
        status=$code
    fi
}

rm -rf "$(folder "without machines")" "$(folder "machines and host")"
available_mib=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
at_once=$([ "$database" = SQLite ] && [ "$available_mib" -ge "$at_once_mib" ] && echo yes)
begun=$(date +%s)
first=0 second=0
if [ -n "$at_once" ]; then
    (become_tests "machines and host" "${with[@]}") >"$log" 2>&1 &
    beside=$!
    # So both end at about the same time, and guests miss no limit of their time.
    lower=(nice -n 5)
fi
(become_tests "without machines" "${without[@]}") || first=$?
lower=()
note_part "without machines" $(($(date +%s) - begun))
[ "$first" -ne 2 ] || exit 2 # interrupted
if [ -n "$at_once" ]; then
    tail -n +1 -f --pid="$beside" "$log"
    wait "$beside" || second=$?
    beside=
    note_part "machines and host" $(($(stat -c %Y "$log") - begun))
else
    begun=$(date +%s)
    (become_tests "machines and host" "${with[@]}") || second=$?
    note_part "machines and host" $(($(date +%s) - begun))
fi
[ "$second" -ne 2 ] || exit 2
status=5
judge "$first" "without machines" "${without[@]}"
judge "$second" "machines and host" "${with[@]}"
exit "$status"
