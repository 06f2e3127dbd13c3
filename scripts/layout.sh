#!/usr/bin/env bash
# `platform/` is a folder on the path, never a package: a module directly in it would shadow one of Python's own.
set -euo pipefail
cd "$(dirname "$0")/.."

found=$(find platform -maxdepth 1 -type f -name '*.py')
[ -z "$found" ] || { echo "No module may lie directly in platform/: $found" >&2; exit 1; }
