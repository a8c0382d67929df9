# shellcheck shell=dash disable=SC2013,SC2034,SC2154
# What is done on a machine of scripts/isolate_machine.sh, and looked at between. report.mjs judges each case by its name.
ALL_CASES=healthy,by_hand

# The NIC's node has the CPUs 4-7, siblings 4,5 and 6,7.
NET=4-5
APPS=0-3,6-7
NIC_IRQS=$(awk -F: '/virtio0-/ { print $1 + 0 }' /proc/interrupts)

case_healthy() {
  look before
  effect traffic 2
}

# What an expert does with echo: the bench itself must see it, and see it undone.
case_by_hand() {
  look before
  for irq in $NIC_IRQS; do cp "/proc/irq/$irq/smp_affinity_list" "/tmp/irq.$irq" && echo $NET >"/proc/irq/$irq/smp_affinity_list"; done
  if [ "$kind" = v1 ]; then
    echo 0 >"$cpusets/cpuset.sched_load_balance"
    mkdir "$cpusets/by-hand"
    echo $APPS >"$cpusets/by-hand/cpuset.cpus"
    echo 0-1 >"$cpusets/by-hand/cpuset.mems"
    # Threads of the kernel with CPUs of their own would lose these.
    moved=$(for task in $(cat "$cpusets/tasks"); do
      grep -q 'Cpus_allowed_list:.0-7' "/proc/$task/status" && echo "$task" >"$cpusets/by-hand/tasks" && echo "$task"
    done 2>/dev/null)
    find "$cpusets" -mindepth 1 -depth -type d ! -name by-hand | while read -r folder; do echo $APPS >"$folder/cpuset.cpus"; done
  else
    mkdir "$cpusets/by-hand"
    echo $NET >"$cpusets/by-hand/cpuset.cpus"
    # Before 6.2 the domains stay as they are when this is not done in two steps.
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
    # And here they would stay as they are when a partition is removed.
    echo member >"$cpusets/by-hand/cpuset.cpus.partition"
  fi
  rmdir "$cpusets/by-hand"
  for irq in $NIC_IRQS; do cat "/tmp/irq.$irq" >"/proc/irq/$irq/smp_affinity_list"; done
  look after
}
