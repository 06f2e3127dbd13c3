#!/usr/bin/env bash
# Random histories of money on every core (docs/testing.md, Money): STEPS steps from SEED, or from another seed each time.
set -euo pipefail

export STEPS=${STEPS:-1000000} SEED=${SEED:-$RANDOM}
echo "STEPS=$STEPS SEED=$SEED"
exec env -u STATE -u PORT .venv/bin/python -m pytest tests/workspaces/charging/test_model.py -n "$(nproc)" --dist load "$@"
