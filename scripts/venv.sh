#!/usr/bin/env bash
# Makes .venv from requirements-dev.lock. A stamp with the lock's hash makes a second run instant.
set -euo pipefail
cd "$(dirname "$0")/.."

lock=requirements-dev.lock
stamp=".venv/.lock-$(sha256sum "$lock" | cut -c1-16)"
[ ! -e "$stamp" ] || exit 0

suitable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
if [ ! -x .venv/bin/python ]; then
    for python in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
        if suitable "$python"; then break; fi
        python=
    done
    [ -n "$python" ] || { echo "Python 3.11 or newer with venv is needed: apt-get install python3 python3-venv" >&2; exit 1; }
    "$python" -m venv .venv
fi

echo "Installing the Python packages of $lock"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"
# The project itself: two folders on the path, which is what an editable install would do, without a build.
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n%s\n' "$PWD" "$PWD/platform" >"$site/microvm-workspaces.pth"
rm -f .venv/.lock-*
touch "$stamp"
