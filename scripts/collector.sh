#!/usr/bin/env bash
# Starts a real Collector with each configuration in deploy/collector, sends the spans of a tank and its target through it, and checks
# that they reach the meter behind it (or the file that it writes). The Collector is built from its Go modules, with the components
# that the configurations name (scripts/collector/main.go). Everything runs in a separate network namespace, so that the
# configurations keep their ports. Needs root and go; SPANGAP names the binary, target/debug/spangap otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."

not_run() { echo "not run: the configurations of the Collector: $1" && exit 0; }
[ "$(id -u)" = 0 ] || not_run "it needs root, for a network of its own"
for tool in go ip unshare curl; do command -v $tool >/dev/null || not_run "there is no $tool"; done

collector=$PWD/target/collector
if [ "${1:-}" != inside ]; then
  (cd scripts/collector && go build -buildvcs=false -trimpath -ldflags '-s -w' -o "$collector" .) || not_run "the Collector cannot be built, see above"
  exec unshare --net --pid --fork --kill-child --mount-proc "$0" inside
fi

ip link set lo up
spangap=${SPANGAP:-target/debug/spangap}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export METER=127.0.0.1:14317 GATEWAY=127.0.0.1:14317 BACKEND=127.0.0.1:24317 BROKERS=127.0.0.1:9092 NODE_NAME=node-of-the-test SPANS=$work/spans.pb

# until_holds WHAT COMMAND...: waits for a condition, for a minute.
until_holds() {
  local what=$1 end=$((SECONDS + 60))
  shift
  until "$@" >/dev/null 2>&1; do
    if [ $SECONDS -ge $end ]; then
      echo "collector: it did not come: $what" >&2
      tail -n 5 "$work"/*.log >&2
      exit 1
    fi
    sleep 0.2
  done
}
meter() { # meter NAME PORTS: one whose ports begin with these digits
  "$spangap" meter --data "$work/$1" --http "127.0.0.1:${2}7070" --otlp-grpc "127.0.0.1:${2}4317" --otlp-http "127.0.0.1:${2}4318" >"$work/$1.log" 2>&1 &
  until_holds "the meter $1" grep '^ready' "$work/$1.log"
}
# calls PORTS: how many calls of tank and target a meter has joined.
calls() { curl --silent --fail "127.0.0.1:${1}7070/api/v1/pairs?window=5m" | grep -o '"client":"tank","server":"target"[^{]*"calls":[0-9]*' | grep -o '[0-9]*$' || echo 0; }
more_calls() { [ "$(calls "$1")" -gt "$2" ]; }
collect() { # collect CONFIGURATION: starts it, and waits until it takes spans
  "$collector" --config "deploy/collector/$1.yaml" >"$work/$1.log" 2>&1 &
  running=$!
  until_holds "the Collector with $1.yaml" grep 'Everything is ready' "$work/$1.log"
}
stop() { # it has to end by itself, with all that it holds sent
  kill -TERM $running
  wait $running || { echo "collector: $1.yaml: it ended with $?" >&2 && tail "$work/$1.log" >&2 && exit 1; }
}
load() { "$spangap" tank 127.0.0.1:50051 --rate 100 --duration 3s --otlp http://127.0.0.1:4317 --json >"$work/tank.json" 2>"$work/tank.log"; }

meter first 1
meter second 2
"$spangap" target --listen 127.0.0.1:50051 --otlp http://127.0.0.1:4317 >"$work/target.log" 2>&1 &

collect agent
load
until_holds "calls through agent.yaml" more_calls 1 250
curl --silent "127.0.0.1:17070/api/v1/pairs?window=5m" >"$work/pairs.json"
echo "ok: agent.yaml: $(calls 1) calls joined behind it"
stop agent

before=$(calls 1)
collect gateway
load
until_holds "all calls through gateway.yaml" more_calls 1 $((before + 250))
# The sampler decides after ten seconds, and keeps some of the spans.
until_holds "sampled calls at the backend of gateway.yaml" more_calls 2 0
stop gateway
all=$(($(calls 1) - before)) some=$(calls 2)
[ "$some" -lt $((all / 2)) ] || { echo "collector: gateway.yaml: $some of $all calls at the backend: nothing was sampled" >&2 && exit 1; }
echo "ok: gateway.yaml: $all calls joined by the meter, $some sampled for the backend"

collect file
load
stop file
"$spangap" gaps "$SPANS" >"$work/gaps.txt"
grep -q '^tank *target' "$work/gaps.txt" || { cat "$work/gaps.txt" >&2 && exit 1; }
echo "ok: file.yaml: $(grep '^tank' "$work/gaps.txt" | awk '{print $3}') calls in the file, as spangap gaps reads it"

"$collector" validate --config deploy/collector/kafka.yaml
echo "ok: kafka.yaml: the Collector takes it"
"$collector" validate --config deploy/collector/to-kafka.yaml
echo "ok: to-kafka.yaml: the Collector takes it; make test-kafka sends spans through it"
echo "not run: spans through deploy/collector/kafka.yaml: there is no broker"
