#!/usr/bin/env bash
# Replays a story: `scripts/story.sh a|b|c [OUT]`. Uses two hosts on this machine (network namespaces joined by a veth),
# with the target on one and the tank on the other; the reports go to OUT (default target/stories). Cleans up after
# itself, even if interrupted. Exits with 1 and the reason if the machine did not show what the story claims. Needs root
# for the namespaces, and the result of `make build`; SPANGAP sets another binary.
set -euo pipefail
cd "$(dirname "$0")/.."

story=${1:-}
out=${2:-target/stories}
case $story in a | b | c) ;; *)
  echo "usage: scripts/story.sh a|b|c [OUT]   a: interrupts on the application's CPU; b: less load, more delay; c: the client is the bottleneck" >&2
  exit 2
  ;;
esac
spangap=${SPANGAP:-$PWD/target/release/spangap}
# shellcheck source=scripts/stage.sh
source scripts/stage.sh
needs ip
mkdir -p "$out" target/stories

# Names contain the process id, so that concurrent stories do not collide.
client=story-client-$$
server=story-server-$$
address=10.211.77.2
applied=
journal=$PWD/target/stories/journal-$$

clean() {
  if [ -n "$applied" ]; then
    ip netns exec "$server" "$spangap" isolate rollback --journal "$journal" || true
    applied=
  fi
  clear_stage "$client" "$server"
  rm -rf "$journal" "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

two_hosts "$client" "$server" 10.211.77

# shows NAME CAUSE: the runs of NAME must show this cause; otherwise the story ends.
shows() {
  echo "== $1: spangap bench check --shows $2"
  "$spangap" bench check "$out/$1.json" --shows "$2" || not_shown "$1: $2"
}
# not_shown WHY: ends the story; the recordings stay.
not_shown() {
  echo "story-$story: NOT SHOWN on this machine: $1 ($(nproc) CPUs, load $(cut -d ' ' -f 1-3 /proc/loadavg))" >&2
  echo "story-$story: a machine that is busy or slow hides it: repeat it when it is quiet; reports: $out/story-$story*" >&2
  exit 1
}
# figure NAME FIGURE PICK: one figure of the runs of NAME, without its fraction.
figure() { "$spangap" bench figure "$out/$1.json" "$2" --pick "$3" | cut -d . -f 1; }
# tank NAME FLAGS...: runs tank on the client's host, with its report in OUT/NAME.html and OUT/NAME.json.
tank() {
  local name=$1
  shift
  echo "== $name: spangap tank $*"
  ip netns exec "$client" "$spangap" tank "$@" --html "$out/$name.html" --json >"$out/$name.json"
  "$spangap" bench show "$out/$name.json"
}

# capture NAME: captures the packets of both hosts from here on, for `dissected`.
capture() {
  keep_packets "$client" tank "$out/$1.client.pcapng"
  keep_packets "$server" target "$out/$1.server.pcapng"
}
# dissected NAME: ends the captures and dissects them, with the result in OUT/NAME-packets.txt.
dissected() {
  local name=$1
  stop tap-tank INT
  stop tap-target INT
  echo "== $name: spangap dissect $name.client.pcapng $name.server.pcapng"
  "$spangap" dissect "$out/$name.client.pcapng" "$out/$name.server.pcapng" --html "$out/$name-packets.html" |
    tee "$out/$name-packets.txt"
}

# steer CPUS: steers the packets of that device to these CPUs, as a mask.
steer() { ip netns exec "$server" sh -c "echo $1 >/sys/class/net/noise/queues/rx-0/rps_cpus"; }
# isolate VERB FLAGS...: on the server's host, where the device is.
isolate() {
  echo "== spangap isolate $*"
  ip netns exec "$server" "$spangap" isolate "$@"
}
# watched NAME: one call per millisecond, while `host thieves` watches who takes the target's time.
watched() {
  local name=$1 looks
  "$spangap" host thieves --pid "$target" --duration 3s >"$out/$name-thieves.txt" &
  looks=$!
  ip netns exec "$client" "$spangap" tank $address:50054 --stack raw --cpus 1 --rate 1000 --duration 5s --warmup 500ms \
    --html "$out/$name.html" --json >"$out/$name.json"
  wait $looks
  echo "== $name"
  "$spangap" bench show "$out/$name.json"
  echo "== $name: spangap host thieves --pid (the target)"
  cat "$out/$name-thieves.txt"
}

if [ "$story" = a ]; then
  [ "$(nproc)" -ge 2 ] || { echo "story: it takes two CPUs" >&2 && exit 1; }
  needs taskset python3
  cable "$client" flood "$server" noise 10.211.78
  serve "$server" $address:50054 --stack raw
  taskset -a -p -c 1 "$target" >/dev/null
  # The application has CPU 1 to itself, and everything is fine.
  watched story-a-quiet
  # A NIC's packets are processed on the application's CPU. Profilers of the application do not see it.
  flood "$client" 10.211.78.2
  steer 2
  watched story-a-flooded
  echo "== spangap host stacks --cpus 1 --not-pid (the target)"
  "$spangap" host stacks --cpus 1 --not-pid "$target" --duration 2s --svg "$out/story-a-stacks.svg"
  # Separated again at run time: planned, applied, proven, undone.
  isolate show --interface noise | tee "$out/story-a-show.txt"
  isolate plan --interface noise --net-cpus cpu:0 --no-cpusets --before "$out/story-a-flooded.json" --write "$out/story-a-plan.json" |
    tee "$out/story-a-plan.txt"
  applied=yes
  isolate apply "$out/story-a-plan.json" --confirm-within 10m --journal "$journal"
  watched story-a-apart
  isolate verify --after "$out/story-a-apart.json" --journal "$journal" | tee "$out/story-a-verify.txt" || true
  isolate rollback --journal "$journal"
  applied=
  stop target
  # The story's claims: the thief is named, p99 is several times as long with it, and short again without it.
  grep -q 'NET_RX.*noise' "$out/story-a-flooded-thieves.txt" || not_shown "no NET_RX of the device noise among the thieves"
  quiet=$(figure story-a-quiet p99 max)
  flooded=$(figure story-a-flooded p99 max)
  apart=$(figure story-a-apart p99 max)
  echo "== story-a: p99 $((quiet / 1000)) us alone, $((flooded / 1000)) us flooded, $((apart / 1000)) us apart"
  [ "$flooded" -ge $((3 * quiet)) ] ||
    not_shown "p99 is $((flooded / 1000)) us flooded, less than 3 times the $((quiet / 1000)) us alone"
  [ "$flooded" -ge $((3 * apart)) ] ||
    not_shown "p99 is $((apart / 1000)) us with the flood on the other CPU, more than a third of the $((flooded / 1000)) us before"
elif [ "$story" = b ]; then
  # tonic writes the headers and the message of a request separately. Without TCP_NODELAY, the second part waits until
  # the first is acknowledged, and the target's kernel delays that by 40 ms unless it has something to send.
  serve "$server" $address:50051 --stack rust
  tank story-b $address:50051 --stack rust --nodelay off,on --rate 40000,10000,1000,100,10,1 \
    --duration 4s --warmup 500ms
  # The same at a fixed rate, seen from the packets of both hosts.
  capture story-b
  tank story-b-captured $address:50051 --stack rust --nodelay off --rate 10 --duration 3s --warmup 0s
  dissected story-b
  stop target
  shows story-b nagle-delayed-ack
  grep -q 'nagle-delayed-ack' "$out/story-b-packets.txt" || not_shown "the packets do not show nagle-delayed-ack"
else
  serve "$server" $address:50052 --stack cpp
  tank story-c-natural $address:50052 --stack cpp-async,go,rust --threads 2 \
    --channels shared,pool:4,distinct --inflight 1,4,16,64 --duration 1s --warmup 300ms
  # One connection is read by one thread at a time. With a serial cost per response, which limits a connection and not
  # the machine, two CPUs show what took the authors of the story forty. The necessary cost depends on the machine: it
  # is chosen so that the ceiling of one connection is an eighth of what the machine reaches over many.
  tank story-c-able $address:50052 --stack cpp-async --threads 16 --channels distinct --inflight 16 --repeat 3 \
    --duration 1s --warmup 300ms
  able=$(figure story-c-able throughput min)
  cost_ns=$((8 * 1000000000 / able))
  [ $cost_ns -ge 100000 ] || cost_ns=100000
  echo "== story-c: this machine makes $able calls/s over 16 connections; each response is given $((cost_ns / 1000)) us"
  "$spangap" lab shim --write target/stories/shim.so
  # Twice, in a different order, so that a drifting machine favours neither way.
  SPANGAP_SHIM_IN=client SPANGAP_SHIM_PORT=50052 SPANGAP_SHIM_COST_NS=$cost_ns SPANGAP_SHIM_COST_BYTES=49 \
    LD_PRELOAD=$PWD/target/stories/shim.so tank story-c $address:50052 --stack cpp-async --threads 16 \
    --channels shared,per-worker,distinct,local-pool --inflight 1..16 --repeat 2 --duration 1s --warmup 300ms
  stop target
  serve "$server" $address:50053 --stack cpp --think 5ms
  tank story-c-far $address:50053 --stack cpp-async --threads 2 \
    --channels shared,distinct --inflight 1,8,64 --duration 1s --warmup 300ms
  stop target
  shows story-c shared-connection
fi
echo "story-$story: shown"
echo "reports: $out/story-$story*.html"
