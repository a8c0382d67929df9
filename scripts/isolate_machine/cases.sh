# shellcheck shell=dash disable=SC2013,SC2034,SC2154
# What is done on a machine of scripts/isolate_machine.sh, and looked at between. checks.mjs says what must hold of each case.
ALL_CASES=healthy,by_hand,applied,killed,guard,orphaned,pinned,queues,irqbalance

# The NIC's node has the CPUs 4-7, siblings 4,5 and 6,7.
NET=4-5
APPS=0-3,6-7
JOURNAL=/var/lib/spangap/isolate/open.journal
NIC_IRQS=$(awk -F: '/virtio0-/ { print $1 + 0 }' /proc/interrupts)

case_healthy() {
  look before
  effect traffic 2
  run show spangap isolate show --interface eth0 --for 200ms
}

# What an expert does with echo: the bench must see both the change and its undo.
case_by_hand() {
  look before
  for irq in $NIC_IRQS; do cp "/proc/irq/$irq/smp_affinity_list" "/tmp/irq.$irq" && echo $NET >"/proc/irq/$irq/smp_affinity_list"; done
  if [ "$kind" = v1 ]; then
    echo 0 >"$cpusets/cpuset.sched_load_balance"
    mkdir "$cpusets/by-hand"
    echo $APPS >"$cpusets/by-hand/cpuset.cpus"
    echo 0-1 >"$cpusets/by-hand/cpuset.mems"
    # Kernel threads with CPUs of their own would lose them.
    moved=$(for task in $(cat "$cpusets/tasks"); do
      grep -q 'Cpus_allowed_list:.0-7' "/proc/$task/status" && echo "$task" >"$cpusets/by-hand/tasks" && echo "$task"
    done 2>/dev/null)
    find "$cpusets" -mindepth 1 -depth -type d ! -name by-hand | while read -r folder; do echo $APPS >"$folder/cpuset.cpus"; done
  else
    mkdir "$cpusets/by-hand"
    echo $NET >"$cpusets/by-hand/cpuset.cpus"
    # Before 6.2, the domains stay unchanged unless this is done in two steps.
    echo root >"$cpusets/by-hand/cpuset.cpus.partition"
    echo isolated >"$cpusets/by-hand/cpuset.cpus.partition"
  fi
  sleep 1
  look applied
  effect applied 2
  if [ "$kind" = v1 ]; then
    find "$cpusets" -mindepth 1 -type d ! -name by-hand | while read -r folder; do echo 0-7 >"$folder/cpuset.cpus"; done
    for task in $moved; do echo "$task" >"$cpusets/tasks"; done 2>/dev/null
    echo 1 >"$cpusets/cpuset.sched_load_balance"
  else
    # And here they would stay unchanged when a partition is removed.
    echo member >"$cpusets/by-hand/cpuset.cpus.partition"
  fi
  rmdir "$cpusets/by-hand"
  for irq in $NIC_IRQS; do cat "/tmp/irq.$irq" >"/proc/irq/$irq/smp_affinity_list"; done
  look after
}

# planned LABEL [ARGUMENT...]: a plan for two CPUs, in /tmp/plan.json.
planned() {
  label=$1
  shift
  rm -f /tmp/plan.json
  run "$label" spangap isolate plan --interface eth0 --net-cpus 2 --write /tmp/plan.json "$@"
}

# Everything, with containers that appear before, during and after `apply`.
case_applied() {
  look before
  planned plan
  container between
  # Pods appear as fast as this machine can make them, until the plan is applied.
  (
    for number in 1 2 3 4 5 6 7 8 9 10 11 12; do
      [ ! -e /tmp/applied ] || break
      container "while$number"
      usleep 100000
    done
  ) >/tmp/containers &
  # Nothing is fast here: the guard has cases of its own.
  run apply spangap isolate apply /tmp/plan.json --confirm-within 10m
  touch /tmp/applied
  wait $!
  cat /tmp/containers
  container after
  look applied
  effect applied 2
  run verify spangap isolate verify --for 1s
  run status spangap isolate status
  run confirm spangap isolate confirm
  run again spangap isolate apply /tmp/plan.json
  run rollback spangap isolate rollback
  look after
  run rollback-again spangap isolate rollback
  look after-again
  gone
}

# records: number of lines in the journal.
records() { if [ -e $JOURNAL ]; then wc -l <$JOURNAL; else echo 0; fi; }

# Killed once this many changes are in the journal.
case_killed() {
  # Slowed down, so that there is time for the kill.
  mkdir "$unified/slow"
  grep -qw cpu "$unified/cgroup.subtree_control" || echo +cpu >"$unified/cgroup.subtree_control"
  look before
  for records in 3 9 16 24; do
    planned "plan-$records"
    echo "15000 100000" >"$unified/slow/cpu.max"
    sh -c "echo \$\$ >$unified/slow/cgroup.procs; exec spangap isolate apply /tmp/plan.json --no-confirm" >/tmp/out 2>/tmp/err &
    apply=$!
    while [ "$(records)" -lt "$records" ] && [ -e /proc/$apply/exe ]; do usleep 1000; done
    kill -9 $apply
    wait $apply
    killed=$?
    echo "max 100000" >"$unified/slow/cpu.max"
    fact killed "$records" "$killed" "$(records)" "$(grep -c '"applied"' $JOURNAL)"
    look "killed-$records"
    run "rollback-$records" spangap isolate rollback
    look "after-$records"
    [ "$killed" != 0 ] || break
  done
  rmdir "$unified/slow"
}

# settled SECONDS: waits until no journal is open.
settled() {
  tries=$(($1 * 10))
  while [ -e $JOURNAL ] && [ $tries -gt 0 ]; do
    usleep 100000
    tries=$((tries - 1))
  done
}

# Nobody confirms.
case_guard() {
  look before
  planned plan
  run apply spangap isolate apply /tmp/plan.json --confirm-within 3s
  look applied
  settled 20
  look after
  run status spangap isolate status
}

# Killed in the middle of `apply`; only the guard remains.
case_orphaned() {
  look before
  planned plan
  spangap isolate apply /tmp/plan.json --confirm-within 4s >/tmp/out 2>/tmp/err &
  apply=$!
  # Everything is in the journal before the first write: killed once a change is visible.
  while [ ! -e "$cpusets/spangap-net" ] && [ ! -e "$cpusets/spangap-apps" ] && [ -e /proc/$apply/exe ]; do usleep 1000; done
  kill -9 $apply
  wait $apply
  fact killed "$(records)"
  look killed
  settled 20
  look after
}

# Threads with CPUs of their own: either some CPUs remain for them, or none.
case_pinned() {
  works . 0x18
  some=$worker
  fact pinned "$some"
  look before
  planned plan
  run apply spangap isolate apply /tmp/plan.json --no-confirm
  look applied
  run rollback spangap isolate rollback
  look after
  works . 0x30
  planned refused
  kill "$worker" "$some"
  wait "$worker" "$some"
}

# One queue per CPU of the network.
case_queues() {
  look before
  planned plan --queues
  run apply spangap isolate apply /tmp/plan.json --no-confirm
  look applied
  effect applied 2
  run rollback spangap isolate rollback
  look after
  effect after 2
}

# applies WHAT: applies a plan for the interrupts alone, and plans again if irqbalance was faster.
applies() {
  for _ in 1 2 3 4 5; do
    planned "plan-$1" --irqbalance "$1" --no-cpusets
    run "apply-$1" spangap isolate apply /tmp/plan.json --no-confirm
    [ "$code" != 0 ] || break
  done
}

# Next to the distribution's irqbalance, which checks every second, and is repeatedly told to start over.
case_irqbalance() {
  if [ ! -x /bin/irqbalance ]; then
    fact lacking irqbalance
    return
  fi
  mkdir -p /run/irqbalance
  look before
  irqbalance --foreground --interval=1 >/tmp/irqbalance 2>&1 &
  balancer=$!
  sleep 3
  # With `leave`, it moves what we moved.
  applies leave
  look leave-applied
  kill -HUP $balancer
  sleep 4
  look leave-later
  run rollback-leave spangap isolate rollback --force
  # With `ban`, it leaves our interrupts alone.
  applies ban
  look ban-applied
  kill -HUP $balancer
  effect ban 6
  kill -HUP $balancer
  sleep 4
  look ban-later
  run rollback-ban spangap isolate rollback
  look ban-after
  # And its list is as before: it moves back what we move.
  for irq in $NIC_IRQS; do echo 4 >"/proc/irq/$irq/smp_affinity_list"; done
  kill -HUP $balancer
  sleep 4
  look free-again
  kill $balancer
  wait $balancer
}
