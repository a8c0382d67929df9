# What scripts/capture_fixtures.sh and scripts/proxy_fixtures.sh have in common: processes of a case, by name. Sourced.
# shellcheck shell=bash

work=$(mktemp -d)
# Processes of this run, by name: what they are stopped by, in the order of their start.
declare -A running=()

missing() {
  local name=${0##*/}
  echo "${name%.sh}: $1" >&2
  exit 1
}
# needs PROGRAM...: as root, with the program that `make build` builds.
needs() {
  [ "$(id -u)" = 0 ] || missing "network namespaces need root: run it with sudo"
  [ -x "${spangap:?}" ] || missing "$spangap is missing: run make build"
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || missing "the program $program is missing"
  done
}
# start NAME COMMAND...: in the background, its output in $work/NAME. A program and no function of a script: of a
# function the subshell would be stopped, and what it runs go on.
start() {
  local name=$1
  shift
  # What was said in an earlier case is not to be waited for.
  rm -f "$work/$name.out" "$work/$name.err"
  "$@" >"$work/$name.out" 2>"$work/$name.err" &
  running[$name]=$!
}
stop() { # stop NAME [SIGNAL]: ends it and waits.
  local pid=${running[$1]:-}
  [ -n "$pid" ] || return 0
  unset "running[$1]"
  kill "-${2:-TERM}" "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
}
await() { # await FILE WORDS: until the file has them; at most 20 s.
  local n
  for ((n = 0; n < 2000; n++)); do
    if grep -q "$2" "$1" 2>/dev/null; then return; fi
    sleep 0.01
  done
  missing "no '$2' in $1: $(tail -n 3 "$1") $(tail -n 3 "${1%.out}.err" 2>/dev/null)"
}
# Ends all processes of a case and takes the namespaces named away.
clear_stage() { # clear_stage NAMESPACE...
  local name
  for name in "${!running[@]}"; do stop "$name"; done
  for name in "$@"; do ip netns del "$name" 2>/dev/null || true; done
}
# dump NAME NAMESPACE DEVICE FILE [FILTER [SNAP]]: a tap.
dump() {
  start "$1" ip netns exec "$2" dumpcap -q -s "${6:-262144}" -B 16 -i "$3" -w "$4" -f "${5:-tcp}"
  await "$work/$1.err" "File:"
}
