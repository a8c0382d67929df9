#!/usr/bin/env bash
# Checks that two builds of dissect produce identical output for every capture under fixtures/: the report as JSON, every call, and
# the page. `scripts/compare_dissect.sh BEFORE AFTER` takes two binaries. For changes that should only affect speed.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 2 ] || { echo "usage: scripts/compare_dissect.sh BEFORE AFTER" >&2; exit 2; }
declare -A binary
binary[before]=$(realpath "$1")
binary[after]=$(realpath "$2")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
compared=0 differing=0

# one NAME ARGUMENT...: dissects by both, in the same folder, so that file names are the same.
one() {
  local name=$1 which
  shift
  for which in before after; do
    local status=0
    "${binary[$which]}" dissect "$@" --slowest 50 --ladders 3 --json --calls "$out/calls" --html "$out/page" >"$out/$which.json" 2>"$out/$which.err" || status=$?
    { echo "$status"; cat "$out/$which.json" "$out/$which.err" "$out/calls" "$out/page" 2>/dev/null || true; } >"$out/$which"
    rm -f "$out/calls" "$out/page"
  done
  compared=$((compared + 1))
  if ! cmp -s "$out/before" "$out/after"; then
    differing=$((differing + 1))
    echo "differs: $name: $(cmp "$out/before" "$out/after" 2>&1 | head -n 1)"
  fi
}

for client in fixtures/captures/*.client.pcapng*; do
  base=${client%.client.pcapng*}
  more=()
  [ -e "$base.keys" ] && more+=(--keylog "$base.keys")
  [ -e "$base.client.spans" ] && more+=(--spans "$base.client.spans")
  servers=()
  for server in "$base".server.pcapng*; do [ ! -e "$server" ] || servers+=("$server"); done
  one "$base" "$client" "${servers[@]}" "${more[@]}"
  one "$base, client alone" "$client" "${more[@]}"
done
for capture in fixtures/strangers/*.pcapng*; do
  base=${capture%.pcapng*}
  more=()
  [ -e "$base.keys" ] && more+=(--keylog "$base.keys")
  one "$base" "$capture" "${more[@]}"
done
for client in fixtures/proxies/*.client.pcapng*; do
  base=${client%.client.pcapng*}
  all=()
  for end in client in out in2 out2 server; do
    for path in "$base.$end".pcapng*; do [ -e "$path" ] && all+=("$path"); done
  done
  one "$base" "${all[@]}"
  for path in "$base.any".pcapng*; do [ -e "$path" ] && one "$base, at the proxy" "$path"; done
done
echo "$compared dissections compared, $differing differ"
[ "$differing" = 0 ]
