# shellcheck shell=dash disable=SC2046,SC2154
# Cgroups as kubelet, docker and systemd make them, with tasks in them, on a machine of scripts/isolate_machine.sh.

# group PATH: a cgroup below the mount, with its parents. A v1 group starts with its parent's values, as runc does it.
group() {
  at=$cpusets
  for name in $(echo "$1" | tr / ' '); do
    if [ "$kind" = v1 ]; then
      mkdir -p "$at/$name"
      [ -n "$(cat "$at/$name/cpuset.cpus")" ] || cat "$at/cpuset.cpus" >"$at/$name/cpuset.cpus"
      [ -n "$(cat "$at/$name/cpuset.mems")" ] || cat "$at/cpuset.mems" >"$at/$name/cpuset.mems"
    else
      grep -q cpuset "$at/cgroup.subtree_control" || echo +cpuset >"$at/cgroup.subtree_control"
      mkdir -p "$at/$name"
    fi
    at=$at/$name
  done
}

# works GROUP [CPUS]: a task in a cgroup (`.`: the root), pinned to a mask if one is given; its id is stored in
# `worker`.
works() {
  if [ -n "${2:-}" ]; then taskset "$2" worker & else worker & fi
  worker=$!
  [ "$1" = . ] || echo "$worker" >"$cpusets/$1/cgroup.procs"
}

# The kubelet's CPU manager, without exclusive sets.
mkdir -p /var/lib/kubelet
echo '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}' >/var/lib/kubelet/cpu_manager_state
if [ "$kind" = v1 ]; then
  PODS=kubepods
  POD_A=kubepods/besteffort/podA
  POD_B=kubepods/burstable/podB
  CONTAINERS="$POD_A/c1 $POD_B/c1 docker/d1"
else
  PODS=kubepods.slice
  POD_A=$PODS/kubepods-besteffort.slice/kubepods-besteffort-podA.slice
  POD_B=$PODS/kubepods-burstable.slice/kubepods-burstable-podB.slice
  CONTAINERS="$POD_A/cri-containerd-a1.scope $POD_B/cri-containerd-b1.scope system.slice/app.service user.slice/user-1000.slice/session-1.scope"
fi

# workload: eight tasks in the root, two in each container.
workload() {
  for _ in 1 2 3 4 5 6 7 8; do works .; done
  for container in $CONTAINERS; do
    group "$container"
    works "$container"
    works "$container"
  done
  [ "$kind" = v1 ] || echo 0-7 >"$cpusets/$POD_B/cri-containerd-b1.scope/cpuset.cpus"
}

# container NAME: one more container in a pod, as made by a runtime; a refusal is recorded as a fact.
container() {
  if [ "$kind" = v1 ]; then made=$POD_A/$1; else made=$POD_A/cri-containerd-$1.scope; fi
  if ! group "$made" 2>/tmp/refused; then fact "container $1 refused $(cat /tmp/refused)"; fi
  works "$made"
  fact "container $1 $worker $made"
}

# gone: removes the containers that `container` made, and their tasks.
gone() {
  for number in between after while1 while2 while3 while4 while5 while6 while7 while8 while9 while10 while11 while12; do
    if [ "$kind" = v1 ]; then made=$cpusets/$POD_A/$number; else made=$cpusets/$POD_A/cri-containerd-$number.scope; fi
    [ -d "$made" ] || continue
    kill $(cat "$made/cgroup.procs")
    while ! rmdir "$made" 2>/dev/null; do usleep 10000; done
  done
}
