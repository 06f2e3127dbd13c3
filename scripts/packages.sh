#!/usr/bin/env bash
# `packages.sh GROUP...`: installs the Debian packages of these groups of packages.debian that are missing. Nothing
# missing: ends at once, needs no root.
set -euo pipefail
cd "$(dirname "$0")/.."

listed() { sed -n "/^\[$1\]/,/^\[/p" packages.debian | sed 's/#.*//; /^\[/d; s/[[:space:]]//g; /^$/d'; }

wanted=()
for group in "$@"; do
    mapfile -t packages < <(listed "$group")
    [ "${#packages[@]}" -gt 0 ] || { echo "packages.debian has no group $group" >&2; exit 2; }
    wanted+=("${packages[@]}")
done
[ "${#wanted[@]}" -gt 0 ] || { echo "usage: packages.sh GROUP..." >&2; exit 2; }

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/^installed //p' || true)
missing=()
for package in "${wanted[@]}"; do
    grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "These Debian packages are missing; install them as root and run this again:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
fi

# The packages bring services (redis, libvirtd, postgresql) that the platform does not use: it starts processes
# of its own. While they are installed, policy 101 keeps them from starting, and a setting keeps PostgreSQL's package from
# making a database. Neither touches what is there, and both are gone afterwards.
policy=/usr/sbin/policy-rc.d
no_cluster=/etc/postgresql-common/createcluster.d/microvm-workspaces.conf
made=("$no_cluster")
trap 'rm -f "${made[@]}"' EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$(dirname "$no_cluster")"
echo "create_main_cluster = false" >"$no_cluster"
if [ ! -e "$policy" ]; then
    made+=("$policy")
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

echo "Installing ${#missing[@]} Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -y -q --no-install-recommends "${missing[@]}"
