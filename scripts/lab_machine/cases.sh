# shellcheck shell=dash disable=SC2013,SC2034,SC2086
# What is done on a machine of scripts/lab_machine.sh. It judges nothing: what was made and what is left goes between markers,
# which checks.mjs reads. This shell has its own `tc`, which is not used.

ALL_CASES="delay delay-near-miss jitter asymmetry clock-near-miss per-call flow quota quota-near-miss killed cleaned"
STATE=/run/spangap/lab
GROUPS_HERE=/sys/fs/cgroup

# Number of calls that such a machine can make in time.
FEW="--set rate=2 --set duration=15s"
# A limit that leaves room for the needs of an emulated program, and bursts beyond it.
QUOTA="--set quota=30ms --set burst=80ms --set rate=20 --set duration=15s"

# lab NAME SCENARIO ARGUMENT...: makes a run; records its truth, its machine.json, and observations of its control
# groups and netem.
lab() {
  name=$1
  shift
  watch_run &
  watching=$!
  read -r began _ </proc/uptime
  timeout 300 spangap lab run "$@" --json --out "/tmp/$name" </dev/null >/tmp/out 2>/tmp/err
  code=$?
  read -r ended _ </proc/uptime
  kill $watching
  wait $watching 2>/dev/null
  told run "$code" "$began" "$ended" "lab run $*"
  cp "/tmp/$name/machine.json" /tmp/out
  cp "/tmp/$name/README" /tmp/err
  told machine 0 0 0 "cat machine.json"
  left
}

# dissected NAME: spangap's analysis of a run's captures.
dissected() {
  (cd "/tmp/$1" && timeout 300 spangap dissect client.pcapng server.pcapng --spans client.spans.json \
    --spans server.spans.json --same-clock --slowest 1000 --json </dev/null >/tmp/out 2>/tmp/err)
  told dissect $? 0 0 "dissect"
}

# watch_run: records facts about the current run until it ends.
watch_run() {
  while :; do
    for group in "$GROUPS_HERE"/spangap-lab-*; do
      [ -e "$group/cpu.max" ] || continue
      throttled=$(sed -n 's/^nr_throttled //p' "$group/cpu.stat")
      fact "group $(cat "$group/cpu.max") throttled ${throttled:-gone} processes $(wc -l <"$group/cgroup.procs")"
    done
    for path in /run/netns/lab-*-path; do
      [ -e "$path" ] || continue
      for side in client server; do
        /bin/tc -n "$(basename "$path")" -s -j qdisc show dev $side >/tmp/watched && fact "path $side $(cat /tmp/watched)"
      done
    done
    sleep 2
  done 2>/dev/null
}

# found: everything on the machine that belongs to runs, one item a line.
found() {
  ls -d /run/netns/* /etc/netns/* "$STATE"/* /tmp/.lab-*
  find "$GROUPS_HERE" -name 'spangap-lab-*'
  grep -l SPANGAP_LAB= /proc/[0-9]*/environ
  grep -l keeper /proc/[0-9]*/cmdline
} 2>/dev/null

# left: what runs have left behind once they have ended.
left() {
  for one in $(found); do fact "left $one"; done
  fact looked
}

# until_it SECONDS COMMAND...: polls until the command succeeds.
until_it() {
  tries=$(($1 * 20))
  shift
  until "$@"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || return 1
    usleep 50000
  done
}

nothing_found() { [ -z "$(found)" ]; }

# Moments at which a run is killed.
at_path() { ls /run/netns/lab-*-path >/dev/null 2>&1; }
at_netem() { at_path && [ "$(/bin/tc -n "$(basename /run/netns/lab-*-path)" qdisc show | grep -c netem)" = 2 ]; }
at_calls() { grep -lq 'tank' /proc/[0-9]*/cmdline 2>/dev/null && at_netem; }

# kill_at MOMENT [KEEPER]: kills a run, with or without its keeper.
kill_at() {
  spangap lab run network-delay --out /tmp/killed >/tmp/out 2>/tmp/err </dev/null &
  run=$!
  until_it 120 "$1" || fact "late $1"
  kill -STOP $run
  fact "there $1 $(found | wc -l)"
  [ -z "${2:-}" ] || for file in $(grep -l keeper /proc/[0-9]*/cmdline); do
    keeper=${file#/proc/}
    kill -KILL "${keeper%/cmdline}"
  done
  kill -KILL $run
  wait $run 2>/dev/null
}

case_delay() {
  lab delay network-delay $FEW
  dissected delay
  rm -r /tmp/delay
}
case_delay_near_miss() { lab near network-delay-near-miss $FEW; }
case_jitter() { lab jitter network-jitter --set jitter=100ms --set duration=15s; }
case_asymmetry() {
  lab asymmetry path-asymmetry $FEW
  dissected asymmetry
}
case_clock_near_miss() { lab clock clock-near-miss $FEW; }
case_per_call() { lab calls connection-per-call $FEW; }
case_flow() { lab flow flow-control --set duration=10s; }
case_quota() { lab quota cpu-quota-server $QUOTA; }
case_quota_near_miss() { lab quota-near cpu-quota-server-near-miss $QUOTA; }

case_killed() {
  for moment in at_path at_netem at_calls; do
    kill_at $moment
    until_it 120 nothing_found || fact "still $moment"
    left
  done
}

case_cleaned() {
  for moment in at_path at_netem at_calls; do
    kill_at $moment and-its-keeper
    fact "before $moment $(found | wc -l)"
    timeout 120 spangap lab clean --json >/tmp/out 2>/tmp/err </dev/null
    told "clean $moment" $? 0 0 "lab clean"
    left
  done
}
