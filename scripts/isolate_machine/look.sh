# shellcheck shell=dash disable=SC2154
# How a machine of scripts/isolate_machine.sh is looked at from outside: with cat, grep and find, between markers that
# report.mjs reads. Nothing here asks spangap how things are.

# look NAME: everything that matters, as it is now.
look() {
  echo "@@ look $1"
  echo "@@ part uptime"
  cat /proc/uptime
  echo "@@ part interrupts"
  cat /proc/interrupts
  echo "@@ part cpu"
  grep ^cpu /proc/stat
  echo "@@ part irq"
  grep -H . /proc/irq/*/smp_affinity_list /proc/irq/*/effective_affinity_list
  echo "@@ part net"
  grep -H . /sys/class/net/*/queues/*/rps_cpus /sys/class/net/*/queues/*/xps_cpus /sys/class/net/*/queues/*/rps_flow_cnt \
    /sys/class/net/*/threaded /proc/sys/net/core/rps_sock_flow_entries 2>/dev/null
  echo "@@ part groups"
  find "$cpusets" -type d
  echo "@@ part cpusets"
  find "$cpusets" -name 'cpuset.*' ! -name '*memory_pressure*' -exec grep -H . {} +
  find "$cpusets" -name cgroup.subtree_control -exec grep -H . {} +
  echo "@@ part tasks"
  grep -HE '^(Name|PPid|Cpus_allowed_list):' /proc/[0-9]*/status
  echo "@@ part stat"
  cat /proc/[0-9]*/stat
  echo "@@ part cgroup"
  if [ "$kind" = v1 ]; then grep -H :cpuset: /proc/[0-9]*/cgroup; else grep -H ^0: /proc/[0-9]*/cgroup; fi
  echo "@@ part domains"
  grep -oE '^(cpu[0-9]+|domain.*) ' /proc/schedstat | grep -oE '^(cpu[0-9]+|domain[0-9]+ [^ ]+)'
  echo "@@ end"
} 2>/dev/null

# counts NAME: counters only.
counts() {
  echo "@@ look $1"
  echo "@@ part uptime"
  cat /proc/uptime
  echo "@@ part interrupts"
  cat /proc/interrupts
  echo "@@ part cpu"
  grep ^cpu /proc/stat
  echo "@@ end"
}

# effect NAME SECONDS: growth of the counters over a while, under traffic.
effect() {
  counts "$1-from"
  sleep "$2"
  counts "$1-to"
}

# run LABEL COMMAND...: a command with its output.
run() {
  label=$1
  shift
  read -r began _ </proc/uptime
  timeout 60 "$@" </dev/null >/tmp/out 2>/tmp/err
  code=$?
  read -r ended _ </proc/uptime
  told "$label" "$code" "$began" "$ended" "$*"
}

# told LABEL CODE BEGAN ENDED COMMAND: records the output in /tmp/out and /tmp/err.
told() {
  echo "@@ run $1"
  echo "@@ command $5"
  echo "@@ time $3 $4"
  echo "@@ code $2"
  echo "@@ part error"
  cat /tmp/err
  echo "@@ part output"
  cat /tmp/out
  echo "@@ end"
}

# fact NAME VALUE: records an observation.
fact() { echo "@@ fact $*"; }
