#!/usr/bin/env bash
# `make test-kubernetes`: builds a one-node Kubernetes, starts it in isolation from this machine, tests the chart on it,
# and removes it again. SPANGAP sets another binary than that of `make build`. Prints `not run` with the reason where
# that is impossible.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/kubernetes/folder.sh

not_run() { echo "not run: the chart on a node of its own: $1" && exit 0; }
[ "$(id -u)" = 0 ] || not_run "it needs root"
[ "$(nproc)" -ge 2 ] || not_run "it needs two CPUs"
[ -e /sys/fs/cgroup/cpuset/cpuset.cpus ] || not_run "control groups are of version 2 here; the node's set-up knows version 1"
for tool in go helm iptables dnsmasq openssl curl unshare nsenter cc; do
  command -v $tool >/dev/null || not_run "the program $tool is missing"
done

binary=${SPANGAP:-target/release/spangap}
[ -x "$binary" ] || { echo "kubernetes: $binary is missing: run make build" >&2 && exit 1; }
scripts/kubernetes/build.sh
# The node finds it by name; its image and the one that holds a pod's namespaces are made without a daemon.
objcopy --strip-all "$binary" "$folder/bin/spangap"
cc -O1 -o "$folder/pause" scripts/kubernetes/node/pause.c
SPANGAP=$folder/bin/spangap scripts/image.sh spangap.test/spangap:1 "$folder/spangap.tar"
SPANGAP=$folder/pause scripts/image.sh spangap.test/pause:1 "$folder/pause.tar"

trap 'scripts/kubernetes/node.sh down' EXIT
trap 'exit 130' INT TERM
scripts/kubernetes/node.sh up
for image in pause spangap; do scripts/kubernetes/node.sh run ctr --namespace k8s.io images import "$folder/$image.tar" >/dev/null; done
node scripts/kubernetes/test.mjs
