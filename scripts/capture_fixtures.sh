#!/usr/bin/env bash
# Makes the captures in fixtures/captures: `scripts/capture_fixtures.sh [NAME...]`, all of them unless named.
# Two hosts on this machine (network namespaces with a veth or the delay line between them), a tap at both, one clock.
# What each shows is in the cases: scripts/captures/*.sh. Removes what it made, also when interrupted.
# Needs root, the programs that `make build` builds, dumpcap, tshark and editcap; single cases need more and say what.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$PWD/fixtures/captures
spangap=${SPANGAP:-$PWD/target/release/spangap}
client=captures-client-$$
middle=captures-middle-$$
server=captures-server-$$
client_address=10.77.0.1
address=10.77.0.2
port=50051
work=$(mktemp -d)
keeper=$$

missing() {
  echo "capture_fixtures: $1" >&2
  exit 1
}
[ "$(id -u)" = 0 ] || missing "network namespaces need root: run it with sudo"
[ -x "$spangap" ] || missing "$spangap is missing: run make build"
for program in ip dumpcap tshark editcap capinfos; do
  command -v "$program" >/dev/null || missing "the program $program is missing: install iproute2 and tshark"
done

# Processes of this run, by name: what they are stopped by, in the order of their start.
declare -A running=()

start() { # start NAME COMMAND...: in the background, its output in $work/NAME.
  local name=$1
  shift
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
  missing "no '$2' in $1: $(tail -3 "$1" "${1%.out}.err" 2>/dev/null)"
}
# Without a veth or a TUN device left, the next case starts from nothing.
clear_case() {
  local name
  for name in "${!running[@]}"; do stop "$name"; done
  ip netns del "$client" 2>/dev/null || true
  ip netns del "$middle" 2>/dev/null || true
  ip netns del "$server" 2>/dev/null || true
}
clean() {
  # Subshells inherit the trap; what is to be cleaned is the script's.
  [ "$BASHPID" = "$keeper" ] || return 0
  clear_case
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

hosts() { # Both namespaces, with nothing between them.
  ip netns add "$client"
  ip netns add "$server"
  ip -n "$client" link set lo up
  ip -n "$server" link set lo up
  device=near
}
link() { # A veth between the two.
  hosts
  ip link add near netns "$client" type veth peer name near netns "$server"
  ip -n "$client" addr add $client_address/24 dev near
  ip -n "$server" addr add $address/24 dev near
  ip -n "$client" link set near up
  ip -n "$server" link set near up
}
line() { # line FLAGS...: the delay line between the two (scripts/delay_line.c); TUN, so bare IP packets.
  hosts
  local host
  device=line
  for host in "$client $client_address" "$server $address"; do
    read -r name own <<<"$host"
    ip -n "$name" tuntap add dev line mode tun
    ip -n "$name" addr add "$own/24" dev line
    ip -n "$name" link set line up
  done
  [ -x "$work/delay_line" ] || cc -O2 -Wall -Werror -o "$work/delay_line" scripts/delay_line.c
  # Its standard input is its life line: the pipe closes with this script.
  start line "$work/delay_line" "$@" "$client" line "$server" line < <(sleep 3600)
  await "$work/line.out" ready
}
on_client() { ip netns exec "$client" "$@"; }
on_server() { ip netns exec "$server" "$@"; }

serve() { # serve FLAGS...: a target on the server's host.
  start target on_server "$spangap" target --listen "$address:$port" "$@"
  await "$work/target.out" "listening on"
}
tank() { # tank FLAGS...: calls it from the client's host.
  on_client "$spangap" tank "${server_seen:-$address}:$port" --trace on --warmup 0s --timeout 30s "$@" --json \
    >"$work/tank.json" 2>"$work/tank.err" || missing "tank: $(tail -3 "$work/tank.err")"
}
tap() { # tap NAME: captures at both ends from here on.
  local end host snap=${snap:-262144}
  for end in client server; do
    host=${!end}
    start "tap-$end" ip netns exec "$host" dumpcap -q -s "$snap" -B 16 -i "$device" -w "$work/$1.$end.pcapng" \
      -f "${filter:-tcp}"
    await "$work/tap-$end.err" "File:"
  done
}
untap() { # Lets the taps read what the kernel still holds, and ends them.
  sleep 0.7
  stop tap-client INT
  stop tap-server INT
}
keep() { # keep NAME: puts the captures where they belong; large ones compressed.
  local end file
  for end in client server; do
    file=$out/$1.$end.pcapng
    rm -f "$file" "$file.zst"
    install -m 644 "$work/$1.$end.pcapng" "$file"
    if [ "$(stat -c %s "$file")" -gt 150000 ]; then zstd -q -19 --rm "$file"; fi
  done
}
truth() { # truth NAME STACK HOW EXPECTED-JSON MUST-NOT-JSON NOTES: what the capture shows, for programs.
  local how=$3
  how=${how//\"/\\\"}
  cat >"$out/$1.json" <<END
{
  "how": "$how",
  "stack": "$2",
  "expected": $4,
  "must_not": $5,
  "notes": "$6"
}
END
}
# What no capture of an untroubled path may be blamed for.
nothing_wrong='["nagle-delayed-ack","rto","tail-loss","fast-retransmit","syn-loss","receive-window","stream-limit","flow-control"]'

# run NAME STACK SERVER-FLAGS TANK-FLAGS: the plain case, on the link that is there.
run() {
  local name=$1 stack=$2
  local -a server_flags tank_flags
  read -ra server_flags <<<"$3"
  read -ra tank_flags <<<"$4"
  serve "${server_flags[@]}"
  tap "$name"
  tank "${tank_flags[@]}"
  untap
  stop target
  keep "$name"
  how="${made_by:-veth}; spangap target $3; spangap tank --trace on --warmup 0s $4"
  truth "$name" "$stack" "$how" "${expected:-\"none\"}" "${must_not:-$nothing_wrong}" "${notes:-}"
}

# Every case is a function `case_NAME` (with _ for -) that leaves NAME.*; sourced files only define them.
for file in scripts/captures/*.sh; do
  # shellcheck source=/dev/null
  source "$file"
done
mkdir -p "$out"
if [ $# = 0 ]; then
  mapfile -t names < <(declare -F | sed -n 's/^declare -f case_//p' | tr _ -)
else
  names=("$@")
fi
for name in "${names[@]}"; do
  declare -F "case_${name//-/_}" >/dev/null || missing "there is no case $name"
  expected='' must_not='' notes='' made_by='' filter='' snap='' server_seen=''
  echo "== $name"
  "case_${name//-/_}"
  clear_case
done
du -sh "$out"
