#!/usr/bin/env bash
# Runs a command with PLATFORM_DATABASE_URL set to a temporary PostgreSQL, which ends with the command. DURABLE=1: commits are
# written to the disk, as where the platform is deployed; for benchmarks.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here:$here/platform${PYTHONPATH:+:$PYTHONPATH}" exec "$here/.venv/bin/python" -m tests.database_server "$@"
