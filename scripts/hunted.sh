#!/usr/bin/env bash
# Follows a story from recorded files to its remedy: `scripts/hunted.sh a|b|c [OUT]`. Injects the story's fault between two hosts on
# this machine (network namespaces) and records both like a user would; `spangap hunt FOLDER` must name the cause; then the remedy is
# applied to the running programs, the measurement repeated, and the remedy undone. The recordings are in OUT (default
# target/stories/hunted). Exits with 1 and the reason if the machine did not show it. Needs root and the result of `make build` (c:
# also `make clients`); SPANGAP sets another binary.
set -euo pipefail
cd "$(dirname "$0")/.."

story=${1:-}
out=${2:-target/stories/hunted}
case $story in a | b | c) ;; *)
  echo "usage: scripts/hunted.sh a|b|c [OUT]   a: interrupts on the application's CPU; b: Nagle's algorithm; c: one connection for all" >&2
  exit 2
  ;;
esac
spangap=${SPANGAP:-$PWD/target/release/spangap}
# shellcheck source=scripts/stage.sh
source scripts/stage.sh
needs ip python3 taskset
mkdir -p "$out"
out=$(cd "$out" && pwd)

# Names contain the process id, so that concurrent runs do not collide.
client=hunted-client-$$
server=hunted-server-$$
address=10.211.79.2
journal=$out/journal-$$
applied=

clean() {
  if [ -n "$applied" ]; then
    ip netns exec "$server" "$spangap" isolate rollback --journal "$journal" || true
  fi
  clear_stage "$client" "$server"
  rm -rf "$journal" "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

two_hosts "$client" "$server" 10.211.79

# not_shown WHY: ends the story; the recordings stay.
not_shown() {
  echo "hunted-$story: NOT SHOWN on this machine: $1 ($(nproc) CPUs, load $(cut -d ' ' -f 1-3 /proc/loadavg)); recorded: $out" >&2
  exit 1
}
# of PROCESS: the process that does the work: its child, or itself.
of() { pgrep -P "$1" | head -n 1 || echo "$1"; }
# record FOLDER: packets and threads of both hosts from here on.
record() {
  local folder=$1 host name device pid
  rm -rf "$folder"
  mkdir -p "$folder"
  for host in "client $client tank $(of "${running[tank]}")" "server $server target $(of "$target")"; do
    read -r host name device pid <<<"$host"
    keep_packets "$name" "$device" "$folder/$host.pcapng"
    start "threads-$host" ip netns exec "$name" "$spangap" host record --pid "$pid" --write "$folder/$host.host"
  done
}
recorded() {
  local name
  # A failed recorder has reported it and ended: the verdict must do without it.
  for name in tap-tank tap-target threads-client threads-server; do stop "$name" INT; done
}
# measure FOLDER: records four seconds of calls.
measure() {
  record "$1"
  sleep 4
  recorded
}
# collect: spans of both hosts, sent to 127.0.0.1:4317 there, until `collected`.
collect() {
  exec {of_client}> >(exec ip netns exec "$client" "$spangap" lab actor collect --listen 127.0.0.1:4317 \
    --write "$work/client.spans.json" >"$work/spans-client.out")
  exec {of_server}> >(exec ip netns exec "$server" "$spangap" lab actor collect --listen 127.0.0.1:4317 \
    --write "$work/server.spans.json" >"$work/spans-server.out")
  await "$work/spans-client.out" ready
  await "$work/spans-server.out" ready
}
# collected FOLDER: stores the spans received so far.
collected() {
  local host
  exec {of_client}>&- {of_server}>&-
  for host in client server; do
    await "$work/$host.spans.json" resourceSpans
    mv "$work/$host.spans.json" "$1/"
    rm "$work/spans-$host.out"
  done
}
# hunt FOLDER: the verdict as text, with the time it took.
hunt() {
  local began
  echo "== spangap hunt $1"
  began=$(date +%s%N)
  "$spangap" hunt "$1" --json 2>/dev/null >"$1.json"
  echo "   in $((($(date +%s%N) - began) / 1000000)) ms"
  "$spangap" hunt "$1" 2>/dev/null | sed -n '1,/^Seen:/p'
}
# named FOLDER: culprits of the verdict, `cause side` each.
named() { python3 -c 'import json, sys
for one in json.load(open(sys.argv[1]))["culprits"]: print(one["cause"], one.get("side") or "")' "$1.json"; }
# quantile FOLDER SHARE: of the durations of all calls that both ends saw, microseconds; of their CLIENT spans, where there are any.
quantile() {
  local file spans=()
  for file in "$1"/*.spans.json; do [ ! -e "$file" ] || spans+=(--spans "$file"); done
  "$spangap" dissect "$1/client.pcapng" "$1/server.pcapng" "${spans[@]}" --json --slowest 10000 2>/dev/null | python3 -c '
import json, sys
calls = sorted(call["duration_ns"] for call in json.load(sys.stdin)["calls"])
print(calls[min(len(calls) - 1, int(len(calls) * float(sys.argv[1])))] // 1000)' "$2"
}
# call FLAGS...: makes calls until `stop tank INT`.
call() {
  start tank ip netns exec "$client" "${preload[@]}" "$spangap" tank "$@" --duration 120s --json
  sleep 2
}
# In front of the tank: c puts a library into its client.
preload=()
# fell BEFORE AFTER SHARE: the same measurement in both folders.
fell() {
  local before after
  before=$(quantile "$1" "$3")
  after=$(quantile "$2" "$3")
  echo "== hunted-$story: quantile $3 of the calls: $before us before, $after us after"
  [ $((2 * after)) -le "$before" ] || not_shown "the quantile $3 of the calls fell from $before us to $after us only"
}

case $story in
a)
  [ "$(nproc)" -ge 2 ] || { echo "hunted: it takes two CPUs" >&2 && exit 1; }
  cable "$client" flood "$server" noise 10.211.80
  # Below Linux's range of client ports: for a capture that begins in the middle, the ports alone show which end serves.
  serve "$server" $address:5054 --stack raw
  taskset -a -p -c 1 "$target" >/dev/null
  flood "$client" 10.211.80.2
  ip netns exec "$server" sh -c "echo 2 >/sys/class/net/noise/queues/rx-0/rps_cpus"
  call $address:5054 --stack raw --cpus 1 --rate 300
  measure "$out/a-before"
  hunt "$out/a-before"
  named "$out/a-before" | grep -q '^softirq-on-cpu' || not_shown "hunt did not name softirq-on-cpu, but: $(named "$out/a-before" | paste -sd,)"
  echo "== spangap isolate plan --interface noise --net-cpus cpu:0 --no-cpusets; isolate apply"
  ip netns exec "$server" "$spangap" isolate plan --interface noise --net-cpus cpu:0 --no-cpusets --write "$out/a-plan.json"
  applied=yes
  ip netns exec "$server" "$spangap" isolate apply "$out/a-plan.json" --confirm-within 10m --journal "$journal"
  measure "$out/a-after"
  hunt "$out/a-after"
  ip netns exec "$server" "$spangap" isolate rollback --journal "$journal"
  applied=
  stop tank INT
  fell "$out/a-before" "$out/a-after" 0.9
  ;;
b)
  serve "$server" $address:50051 --stack rust
  call $address:50051 --stack rust --nodelay off --rate 10
  measure "$out/b-before"
  hunt "$out/b-before"
  [ "$(named "$out/b-before")" = "nagle-delayed-ack client" ] ||
    not_shown "hunt did not name nagle-delayed-ack (client), but: $(named "$out/b-before" | paste -sd,)"
  echo "== spangap sockets set nodelay=on, on the live connections of the client"
  ip netns exec "$client" "$spangap" sockets set --pid "$(of "${running[tank]}")" --port 50051 nodelay=on --journal "$journal"
  measure "$out/b-after"
  hunt "$out/b-after"
  ip netns exec "$client" "$spangap" sockets undo --all --journal "$journal"
  stop tank INT
  fell "$out/b-before" "$out/b-after" 0.5
  ;;
c)
  # A serial cost per response that uses no CPU and delays only its own connection: see docs/stories.md.
  "$spangap" lab shim --write "$out/shim.so"
  preload=(env SPANGAP_SHIM_IN=client SPANGAP_SHIM_PORT=50052 SPANGAP_SHIM_COST_NS=1000000 SPANGAP_SHIM_COST_BYTES=49
    LD_PRELOAD="$out/shim.so")
  otlp=(--otlp http://127.0.0.1:4317)
  for way in before:shared after:distinct; do
    channels=${way#*:}
    folder=$out/c-${way%:*}
    echo "== spangap tank --stack cpp-async --threads 16 --inflight 16 --channels $channels"
    # Calls that wait in the client before their first byte: only spans show when they began.
    collect
    serve "$server" $address:50052 --stack cpp "${otlp[@]}"
    call $address:50052 --stack cpp-async --threads 16 --inflight 16 --channels "$channels" "${otlp[@]}"
    measure "$folder"
    stop tank INT
    stop target
    collected "$folder"
    hunt "$folder"
    # Either responses wait for each other in the client, or it takes long over each: a second connection shows which.
    [ "$channels" = distinct ] || named "$folder" | grep -q '^shared-connection client' ||
      not_shown "hunt did not name shared-connection (client), but: $(named "$folder" | paste -sd,)"
  done
  fell "$out/c-before" "$out/c-after" 0.5
  ;;
esac
echo "hunted-$story: shown"
