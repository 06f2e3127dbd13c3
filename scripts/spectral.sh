#!/usr/bin/env bash
# Checks the OpenAPI document with Spectral: an error or a warning fails. Spectral and what it needs are pinned by
# scripts/spectral/package-lock.json and installed below .venv; no script of a package runs at that. A stamp with the
# lock's hash makes a second call not install again.
#
# Where the registry of npm cannot be reached (`npm_config_registry` names another one) this says so and ends well, but
# for CI=true.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=.venv/share/spectral
stamp=$folder/.lock-$(sha256sum scripts/spectral/package-lock.json | cut -c1-16)

if [ ! -e "$stamp" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    cp scripts/spectral/package.json scripts/spectral/package-lock.json "$folder/"
    if ! npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null; then
        echo "The OpenAPI document is not checked by Spectral: its packages could not be fetched. \`make lint\` tries again;" >&2
        echo "npm_config_registry names another registry." >&2
        [ "${CI:-}" != true ] || exit 1
        exit 0
    fi
    touch "$stamp"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PLATFORM_STATE=$work PLATFORM_VM_BACKEND=fake PYTHONPATH=.:platform .venv/bin/python manage.py spectacular --skip-checks \
    --validate --fail-on-warn --format openapi-json --file "$work/openapi.json"
"$folder/node_modules/.bin/spectral" lint "$work/openapi.json" --ruleset scripts/spectral/spectral.yaml \
    --fail-severity hint --quiet
