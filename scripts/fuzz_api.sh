#!/usr/bin/env bash
# Cases of the API's description (docs/testing.md, API): CASES of them, valid and not, from SEED or from another seed each
# time, in PROCESSES processes. PROGRESS is a file with a line for the cases of an operation that ended well.
set -euo pipefail

export CASES=${CASES:-100000} SEED=${SEED:-$RANDOM} PROGRESS=${PROGRESS:-}
PROGRESS=${PROGRESS:-$(mktemp /tmp/fuzz-api-"$SEED".XXXXXX)}
touch "$PROGRESS"
echo "CASES=$CASES SEED=$SEED PROGRESS=$PROGRESS"

begun=$SECONDS code=0
env -u STATE -u PORT .venv/bin/python -m pytest tests/api_cases/test_cases.py -n "${PROCESSES:-$(nproc)}" --dist load "$@" ||
    code=$?
PYTHONPATH=.:platform .venv/bin/python -m tests.api_cases.report "$PROGRESS" "$CASES"
echo "seed $SEED, $((SECONDS - begun)) s, ${PROCESSES:-$(nproc)} processes"
exit "$code"
