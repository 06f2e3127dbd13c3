#!/usr/bin/env bash
# `npm.sh run|dev`: brings the files of npm.lock into .venv/share/npm; `dev` those of running, too. Archives are pinned by
# hash and unpacked only; no program of theirs runs, and npm is not needed. A stamp with the lock's hash makes a second
# call instant.
#
# The registry is the public one, or that of `npm_config_registry`, npm's own variable. Where it cannot be reached this
# says so and ends well: everything but the terminal page works without, and the next call tries again.
set -euo pipefail
cd "$(dirname "$0")/.."

registry=${npm_config_registry:-https://registry.npmjs.org}
case "${1:-}" in
    run) groups=" run " ;;
    dev) groups=" run dev " ;;
    *) echo "usage: npm.sh run|dev" >&2; exit 2 ;;
esac
folder=.venv/share/npm
hash=$(sha256sum npm.lock | cut -c1-16)
[ ! -e "$folder/.$1-$hash" ] || exit 0

mkdir -p "$folder"
work=$(mktemp -d "$folder/.new.XXXXXX")
trap 'rm -rf "$work"' EXIT
while read -r group package version sha512 files; do
    case "$groups" in *" $group "*) ;; *) continue ;; esac
    name=${package##*/}
    address=${registry%/}/$package/-/$name-$version.tgz
    if ! curl --fail --silent --show-error --location --retry 2 --connect-timeout 10 --max-time 120 \
        --output "$work/archive" "$address"; then
        echo "The terminal page of sandboxes is not installed: $package could not be fetched. \`make setup\` tries again;" >&2
        echo "npm_config_registry names another registry." >&2
        exit 0
    fi
    if ! echo "$sha512  $work/archive" | sha512sum --check --status; then
        echo "$package $version is not what npm.lock says: its hash differs. Nothing of it is used." >&2
        exit 1
    fi
    mkdir -p "$work/unpacked" "$work/ready/$name"
    read -r -a wanted <<<"$files"
    tar -xzf "$work/archive" -C "$work/unpacked" --no-same-owner "${wanted[@]/#/package/}"
    for file in "${wanted[@]}"; do
        install -m 644 "$work/unpacked/package/$file" "$work/ready/$name/$(basename "$file")"
    done
    rm -rf "$work/unpacked"
done < <(sed 's/#.*//; /^[[:space:]]*$/d' npm.lock)

# Complete from here on. A call that dies in between leaves no stamp, and the next one begins again.
rm -f "$folder"/.run-* "$folder"/.dev-*
for made in "$work"/ready/*; do
    rm -rf "${folder:?}/$(basename "$made")"
    mv "$made" "$folder/"
done
touch "$folder/.run-$hash"
[ "$1" = run ] || touch "$folder/.dev-$hash"
