#!/bin/sh
# Runs in the root file system that scripts/deb_root.sh made, on a network of its own: real verbs of the installed program, as an
# ordinary user and as root. `walk.sh CAPTURE`: a capture to dissect.
set -eu

capture=$1
work=$(mktemp -d)
chmod 755 "$work"
running=
stop_all() {
  for one in $running; do
    if kill "$one" 2>/dev/null; then wait "$one" || true; fi
  done
}
trap stop_all EXIT
# No function: in the background it would be another process that is stopped.
as_user="setpriv --reuid=65534 --regid=65534 --clear-groups"
ok() { echo "ok: $1"; }
fail() {
  echo "walk: it does not hold: $1" >&2
  for said in "$work"/*; do
    case $said in *.pcapng) ;; *) echo "--- $said" && tail -n 8 "$said" | cut -c 1-300 ;; esac >&2
  done
  exit 1
}
# until_holds WHAT COMMAND...: for a minute.
until_holds() {
  what=$1
  left=300
  shift
  until "$@" >/dev/null 2>&1; do
    left=$((left - 1))
    [ $left -gt 0 ] || fail "$what"
    sleep 0.2
  done
}
at_least() { [ "${1:-0}" -ge "$2" ]; }
# first NUMBER FILE: the first of that name in a JSON document.
first() { grep -o "\"$1\":[0-9]*" "$2" | head -n 1 | cut -d : -f 2; }

$as_user spangap --version >"$work/version"
grep -q '^spangap [0-9]' "$work/version" || fail "the version"

spangap target --listen 127.0.0.1:50051 >"$work/target" 2>&1 &
target=$!
running="$running $target"
until_holds "a target" grep '^listening' "$work/target"

# As root: packets, what eBPF sees of the scheduler, the traps of the host.
spangap capture --interface lo --filter 'tcp port 50051' --write "$work/lo.pcapng" >"$work/capture" 2>&1 &
capturing=$!
running="$running $capturing"
until_holds "a capture" grep '^capturing' "$work/capture"
$as_user spangap tank 127.0.0.1:50051 --inflight 1 --duration 2s --warmup 100ms --json >"$work/tank" || fail "tank"
at_least "$(first ok "$work/tank")" 20 || fail "calls of tank"
ok "tank and target: $(first ok "$work/tank") calls"
kill -INT $capturing
wait $capturing || fail "the end of the capture"
spangap dissect "$work/lo.pcapng" >"$work/dissected" 2>&1 || fail "dissect of what was captured"
grep -q '^[0-9,]* calls on [0-9]* connection' "$work/dissected" || fail "calls in what was captured"
ok "capture and dissect: $(grep -m 1 '^[0-9,]* calls on' "$work/dissected")"

spangap host check --pid $target --for 200ms --json >"$work/check" || fail "host check"
ok "host check"
if [ -e /sys/kernel/btf/vmlinux ]; then
  $as_user spangap tank 127.0.0.1:50051 --inflight 1 --duration 8s >"$work/load" 2>&1 &
  load=$!
  spangap host offcpu --pid $target --duration 2s >"$work/offcpu" 2>&1 || fail "host offcpu"
  wait $load
  grep -q '^spangap' "$work/offcpu" || fail "a process that host offcpu saw"
  ok "host offcpu"
else
  echo "not run: host offcpu: this kernel has no types (BTF)"
fi
kill $target

$as_user spangap dissect "$capture" >"$work/fixture" || fail "dissect of a kept capture"
grep -q '^[0-9,]* calls on [0-9]* connection' "$work/fixture" || fail "calls in a kept capture"
ok "dissect: $(grep -m 1 '^[0-9,]* calls on' "$work/fixture")"

# What `make run` is without root: a meter, a pair, and the pair's row.
$as_user spangap demo >"$work/demo" 2>&1 &
running="$running $!"
until_holds "a pair with a gap" grep '^tank  *target ' "$work/demo"
ok "demo: $(grep -m 1 '^tank  *target ' "$work/demo")"
