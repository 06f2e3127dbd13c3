#!/usr/bin/env bash
# Where the time of a CI run went: `times.sh FILE TOTAL`, FILE as scripts/tests.sh and tests/times.py write it.
set -euo pipefail

file=$1
total=$2
list() { LC_ALL=C sort -k1,1nr | awk -F'\t' '{ printf "  %8.1f s  %s\n", $1, $2 }'; }

echo "== Total: $total s of 3300 s"
awk -F'\t' '$1 == "target" { printf "%s\t%s\n", $2, $3 }' "$file" | list
echo "== Parts"
awk -F'\t' '$1 == "part" { printf "%s\t%s\n", $2, $3 }' "$file" | list
echo "== Tests by folder (summed over processes)"
awk -F'\t' '$1 == "test" { split($4, at, "/"); sum[at[2] ~ /\.py/ ? "tests" : "tests/" at[2]] += $2 }
    END { for (name in sum) printf "%s\t%s\n", sum[name], name }' "$file" | list
echo "== The 15 slowest tests"
awk -F'\t' '$1 == "test" { printf "%s\t%s (%s)\n", $2, $4, $3 }' "$file" | list | head -15 || true
if grep -q ^unstable "$file"; then
    echo "== Failed beside others, passed alone: each is a fault to look for"
    awk -F'\t' '$1 == "unstable" { printf "  %s (%s)\n", $3, $2 }' "$file"
fi
