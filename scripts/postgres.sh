#!/usr/bin/env bash
# Runs a command with PLATFORM_DATABASE_URL set to a temporary PostgreSQL, which is removed afterwards.
# DURABLE=1: commits are written to the disk, as where it is deployed; for benchmarks.
# A cluster in a temporary folder, a Unix socket and no TCP port: nothing of a PostgreSQL on this machine is touched.
set -euo pipefail

bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
folder=$(mktemp -d /tmp/mvm-pg.XXXXXX)
as=()
if [ "$(id -u)" -eq 0 ]; then
    # initdb refuses root.
    as=(runuser -u postgres --)
    chown postgres "$folder"
fi

finish() {
    status=$?
    trap '' INT TERM HUP
    "${as[@]}" "$bin/pg_ctl" -D "$folder/data" -m immediate -w stop >/dev/null 2>&1 || true
    rm -rf "$folder"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

cd "$folder"
"${as[@]}" "$bin/initdb" -D "$folder/data" -U platform -A trust --no-sync -E UTF8 --locale=C.UTF-8 >/dev/null
# What a crash would lose does not matter here, and tests commit often.
options="-c listen_addresses= -c unix_socket_directories=$folder -c max_connections=200"
if [ -z "${DURABLE:-}" ]; then
    options="$options -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
fi
"${as[@]}" "$bin/pg_ctl" -D "$folder/data" -l "$folder/log" -o "$options" -w start >/dev/null
"${as[@]}" "$bin/createdb" -h "$folder" -U platform platform
chmod 755 "$folder"

cd "$OLDPWD"
PLATFORM_DATABASE_URL="postgresql://platform@/platform?host=$folder" "$@"
