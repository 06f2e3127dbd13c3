#!/usr/bin/env bash
# Random histories of money (docs/testing.md, Money): STEPS steps from SEED, or from another seed each time, in PROCESSES
# processes. PROGRESS is a file with a line for each part that has ended well; the same SEED, STEPS and PROGRESS go on there.
set -euo pipefail

# Some histories end a step or more early: a million and 2 %.
export STEPS=${STEPS:-1020000} SEED=${SEED:-$RANDOM} PROGRESS=${PROGRESS:-}
PROGRESS=${PROGRESS:-$(mktemp /tmp/fuzz-"$SEED".XXXXXX)}
touch "$PROGRESS"
echo "STEPS=$STEPS SEED=$SEED PROGRESS=$PROGRESS"

tail -n +1 -f "$PROGRESS" &
follower=$!
trap 'kill $follower' EXIT
env -u STATE -u PORT .venv/bin/python -m pytest tests/workspaces/charging/test_model.py \
    -n "${PROCESSES:-$(nproc)}" --dist load "$@"
sleep 1 # the last lines
awk '/^seed / { steps += $4 } END { printf "%d steps in %d parts, all as expected\n", steps, NR }' "$PROGRESS"
