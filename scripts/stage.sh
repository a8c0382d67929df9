# What the scripts that play on network namespaces have in common: processes by name, two hosts, programs on them. Sourced.
# shellcheck shell=bash

work=$(mktemp -d)
# Processes of this run, by the names used to stop them, in the order of their start.
declare -A running=()

missing() {
  local name=${0##*/}
  echo "${name%.sh}: $1" >&2
  exit 1
}
# needs PROGRAM...: requires root and the program that `make build` builds.
needs() {
  [ "$(id -u)" = 0 ] || missing "network namespaces need root: run it with sudo"
  [ -x "${spangap:?}" ] || missing "$spangap is missing: run make build"
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || missing "the program $program is missing"
  done
}
# start NAME COMMAND...: runs a program in the background, with its output in $work/NAME. Not a shell function: stopping
# one would stop the subshell, while the programs that it started go on.
start() {
  local name=$1
  shift
  # Output of an earlier case must not satisfy a wait.
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
# Ends all processes of a case and removes the named namespaces.
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

# two_hosts CLIENT SERVER NETWORK: namespaces joined by a cable: `tank` (NETWORK.1) and `target` (NETWORK.2).
two_hosts() {
  ip netns add "$1"
  ip netns add "$2"
  cable "$1" tank "$2" target "$3"
  ip -n "$1" link set lo up
  ip -n "$2" link set lo up
}
# cable NAMESPACE DEVICE NAMESPACE DEVICE NETWORK: its ends have NETWORK.1 and NETWORK.2.
cable() {
  ip link add "$2" netns "$1" type veth peer name "$4" netns "$3"
  ip -n "$1" addr add "$5.1/24" dev "$2"
  ip -n "$3" addr add "$5.2/24" dev "$4"
  ip -n "$1" link set "$2" up
  ip -n "$3" link set "$4" up
}
# flood NAMESPACE ADDRESS: sends packets as fast as CPU 0 can, to a port without a listener.
flood() {
  start flood taskset -c 0 ip netns exec "$1" python3 -c '
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.connect((sys.argv[1], 9))
while True:
    try: out.send(b"x" * 64)
    except OSError: pass' "$2"
}
# serve NAMESPACE ADDRESS:PORT FLAGS...: a listening target, with its process id in $target.
serve() {
  local namespace=$1 at=$2
  shift 2
  start target ip netns exec "$namespace" "$spangap" target --listen "$at" "$@"
  await "$work/target.out" "listening on "
  target=${running[target]}
}
# keep_packets NAMESPACE DEVICE FILE: captures packets from here on, until `stop tap-DEVICE INT`.
keep_packets() {
  start "tap-$2" ip netns exec "$1" "$spangap" capture --interface "$2" --ring 256MiB --write "$3"
  await "$work/tap-$2.err" "capturing "
}
