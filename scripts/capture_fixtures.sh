#!/usr/bin/env bash
# Makes the captures in fixtures/captures: `scripts/capture_fixtures.sh [NAME...]`, by default all of them. Uses two hosts on this
# machine (network namespaces joined by a veth or the delay line), a tap at both, and one clock. scripts/captures/*.sh defines the
# cases. Cleans up after itself, even if interrupted. CAPTURES_OUT sets another output folder.
# Needs root, the programs of `make build clients`, dumpcap, tshark and editcap; some cases need more, and say so.
# Cases have separate input files.
# shellcheck disable=SC2034
set -euo pipefail
cd "$(dirname "$0")/.."

out=${CAPTURES_OUT:-$PWD/fixtures/captures}
clients=${SPANGAP_CLIENTS:-$PWD/target/clients}
spangap=${SPANGAP:-$PWD/target/release/spangap}
client=captures-client-$$
middle=captures-middle-$$
server=captures-server-$$
client_address=10.77.0.1
address=10.77.0.2
port=50051
# Only what scripts/captures/peer.py needs: grpcio and h2.
python=${CAPTURES_PYTHON:-/tmp/captures-python/bin/python}
keeper=$$
life=
# shellcheck source=scripts/stage.sh
source scripts/stage.sh
needs ip dumpcap tshark editcap nstat

# Removes the veth or TUN devices, so that the next case starts from scratch.
clear_case() {
  clear_stage
  if [ -n "$life" ]; then exec {life}>&-; fi
  life=
  clear_stage "$client" "$middle" "$server"
}
clean() {
  # Subshells inherit the trap, but only the script itself may clean up.
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
line() { # line FLAGS...: the delay line between the two (`spangap lab actor line`); TUN, so bare IP packets.
  hosts
  local host
  device=line
  for host in "$client $client_address" "$server $address"; do
    read -r name own <<<"$host"
    ip -n "$name" tuntap add dev line mode tun
    ip -n "$name" addr add "$own/24" dev line
    ip -n "$name" link set line up
  done
  # Its standard input is its life line: when this script ends, however it ends, so does the pipe.
  rm -f "$work/line.out"
  exec {life}> >(exec "$spangap" lab actor line "$@" "$client" line "$server" line >"$work/line.out" 2>"$work/line.err")
  running[line]=$!
  await "$work/line.out" ready
}
on_client() { ip netns exec "$client" "$@"; }
on_server() { ip netns exec "$server" "$@"; }

serve() { # serve FLAGS...: a target on the server's host.
  start target ip netns exec "$server" "$spangap" target --listen "$address:$port" "$@"
  await "$work/target.out" "listening on"
}
tank() { # tank FLAGS...: calls it from the client's host.
  on_client "$spangap" tank "${server_seen:-$address}:$port" --trace on --warmup 0s --timeout 30s "$@" --json \
    >"$work/tank.json" 2>"$work/tank.err" || missing "tank: $(tail -n 3 "$work/tank.err")"
}
# call STACK CALLS FLAGS...: the client program alone, without tank's own requests to the target. Further flags of
# clients/CONTRACT.md come last, and take precedence.
call() {
  local stack=$1 calls=$2 program fifo=$work/go
  shift 2
  case $stack in
    rust | raw) program=("$spangap") ;;
    go) program=("$clients/spangap-go") ;;
    *) program=("$clients/spangap-cpp") ;;
  esac
  local -A flags=([stack]=$stack [target]="${server_seen:-$address}:$port" [call]=unary [channels]=shared
    [schedule]=closed [in-flight]=1 [threads]=1 [request-bytes]=0 [response-bytes]=target [think-ns]=target
    [nodelay]=on [split-writes]=off [timeout-ns]=30000000000 [warmup-ns]=0 [duration-ns]=0 [calls]=$calls
    [trace]=on [records]=none [slow-ns]=0 [record-file]='')
  local flag
  local -a all=()
  for flag in "$@"; do flags[${flag%%=*}]=${flag#*=}; done
  for flag in "${!flags[@]}"; do all+=("--$flag=${flags[$flag]}"); done
  # Open for both ways: the program's life line does not end before it does.
  rm -f "$fifo"
  mkfifo "$fifo"
  exec {go}<>"$fifo"
  echo go >&"$go"
  on_client timeout 60 "${program[@]}" client "${all[@]}" <&"$go" >"$work/call.out" 2>"$work/call.err" ||
    missing "client $stack: $(tail -n 3 "$work/call.err") $(tail -n 3 "$work/call.out")"
  exec {go}>&-
}
tap() { # tap NAME: captures at both ends from here on.
  local end
  for end in client server; do
    dump "tap-$end" "${!end}" "$device" "$work/$1.$end.pcapng" "${filter:-tcp}" "${snap:-262144}"
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
    if [ "$(stat -c %s "$file")" -gt "${limit:-45000}" ]; then zstd -q -19 --rm "$file"; fi
  done
}
# TCP counters of both hosts as JSON; the namespaces are new, so they belong to this case alone.
counters() {
  local end
  for end in client server; do
    ip netns exec "${!end}" nstat -az | awk -v end=$end '
      BEGIN { printf "%s\"%s\": {", end == "server" ? ", " : "", end }
      $1 ~ /^TcpExt(TCPTimeouts|TCPLossProbes|TCPLossProbeRecovery|TCPFastRetrans|TCPSlowStartRetrans|TCPLostRetransmit|TCPSpuriousRTOs|TCPSynRetrans|TCPDSACKRecv|TCPSACKReorder|TCPToZeroWindowAdv|DelayedACKs)$/ && $2 > 0 {
        sub("TcpExt", "", $1); printf "%s\"%s\": %d", comma, $1, $2; comma = ", " }
      $1 == "TcpRetransSegs" && $2 > 0 { printf "%s\"RetransSegs\": %d", comma, $2; comma = ", " }
      END { printf "}" }'
  done
}
truth() { # truth NAME STACK HOW EXPECTED-JSON MUST-NOT-JSON NOTES [COUNTERS-JSON]: what they show, for programs.
  local how=$3
  how=${how//\"/\\\"}
  local more=
  if [ -n "${ends:-}" ]; then more=$'\n'"  \"ends\": $ends,"; fi
  cat >"$out/$1.json" <<END
{
  "how": "$how",
  "stack": "$2",
  "expected": $4,
  "must_not": $5,$more
  "counters": {${7:-}},
  "notes": "$6"
}
END
}
# Causes that no capture of a healthy path may show.
nothing_wrong='["nagle-delayed-ack","rto","tail-loss","fast-retransmit","syn-loss","receive-window","stream-limit","flow-control"]'

# run NAME STACK SERVER-FLAGS TANK-FLAGS: the plain case, on the current link.
run() {
  local name=$1 stack=$2
  local -a server_flags tank_flags
  read -ra server_flags <<<"$3"
  read -ra tank_flags <<<"$4"
  serve "${server_flags[@]}"
  tap "$name"
  tank "${tank_flags[@]}"
  untap
  finish "$name" "$stack" "spangap target $3; spangap tank --trace on --warmup 0s $4"
}
# calls NAME STACK SERVER-FLAGS CALLS FLAGS: the same without tank.
calls() {
  local name=$1 stack=$2
  local -a server_flags flags
  read -ra server_flags <<<"$3"
  read -ra flags <<<"${5:-}"
  serve "${server_flags[@]}"
  tap "$name"
  call "$stack" "$4" "${flags[@]}"
  untap
  finish "$name" "$stack" "spangap target $3; client program (clients/CONTRACT.md) stack=$stack calls=$4 ${5:-}"
}
finish() { # finish NAME STACK HOW: the files, and what is said of them.
  keep "$1"
  truth "$1" "$2" "${made_by:-veth}; $3" "${expected:-\"none\"}" "${must_not:-$nothing_wrong}" "${notes:-}" "$(counters)"
  grep -o '"counters".*' "$out/$1.json"
}
# because CAUSE SIDE CALLS [NOT...]: the cause that must be found, and causes that must not.
because() {
  local side='' cause
  if [ "$2" != - ]; then side="\"side\": \"$2\", "; fi
  expected="{\"cause\": \"$1\", $side\"at_least_calls\": $3}"
  shift 3
  must_not=
  for cause in "$@"; do must_not+="${must_not:+, }\"$cause\""; done
  must_not="[$must_not]"
}

# Every case is a function `case_NAME` (with _ for -) that leaves NAME.*; sourced files only define them.
for file in scripts/captures/*.sh; do
  # shellcheck source=/dev/null
  source "$file"
done
mkdir -p "$out"
if [ $# = 0 ]; then
  # Cases derived from other captures come after them.
  made_of_others='_(mid_joined|snap_96|pcap_us|pcap_ns)$'
  mapfile -t names < <(declare -F | sed -n 's/^declare -f case_//p' >"$work/cases"
    grep -Ev "$made_of_others" "$work/cases" | tr _ -
    grep -E "$made_of_others" "$work/cases" | tr _ -)
else
  names=("$@")
fi
for name in "${names[@]}"; do
  declare -F "case_${name//-/_}" >/dev/null || missing "there is no case $name"
  expected='' must_not='' notes='' made_by='' serving='' ends='' filter='' snap='' limit='' server_seen=''
  echo "== $name"
  "case_${name//-/_}"
  clear_case
done
du -sh "$out"
