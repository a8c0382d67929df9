#!/usr/bin/env bash
# A one-node Kubernetes, isolated from the machine that it runs on: `scripts/kubernetes/node.sh up`, `node.sh run
# COMMAND...` on the node, `node.sh processes` its processes, `node.sh down`. It lives in its own namespaces (mounts,
# network, host name) and in control groups named `spangap-node`, by which all of it is found and killed. Its processes have
# the machine's ids, as on every node: those are what the kernel reports to an agent. Nothing is written outside
# target/kubernetes. Needs root, and the output of scripts/kubernetes/build.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/kubernetes/folder.sh

state=$folder/state
group=spangap-node
address=10.88.7.1
services=10.96.0.0/24

# Ids of all processes of the node.
processes() { find "/sys/fs/cgroup/cpuset/$group" -name cgroup.procs -exec cat {} + 2>/dev/null || true; }

groups() { find /sys/fs/cgroup -maxdepth 2 -type d \( -name $group -o -name k8s.io \) 2>/dev/null; }

# until_holds SECONDS WHAT COMMAND...: waits for a condition.
until_holds() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "kubernetes: $what: it did not come; the logs are in $state/log" >&2 && return 1; }
    sleep 0.2
  done
}

run() {
  KUBECONFIG=$state/etc/admin.kubeconfig HELM_CACHE_HOME=$state/helm HELM_CONFIG_HOME=$state/helm HELM_DATA_HOME=$state/helm \
    exec nsenter --target "$(cat "$state/init.pid")" --mount --net --uts -- "$@"
}

# certificate NAME SUBJECT [NAMES]: a certificate signed by the node's authority.
certificate() {
  local names=${3:-}
  openssl req -new -newkey rsa:2048 -nodes -keyout "$state/pki/$1.key" -subj "$2" -out "$state/pki/$1.csr" 2>/dev/null
  openssl x509 -req -in "$state/pki/$1.csr" -CA "$state/pki/ca.crt" -CAkey "$state/pki/ca.key" -CAcreateserial -days 30 \
    -out "$state/pki/$1.crt" -extfile <(printf 'extendedKeyUsage=serverAuth,clientAuth\n%s\n' "${names:+subjectAltName=$names}") 2>/dev/null
}

# kubeconfig NAME SUBJECT: how a program of that name authenticates.
kubeconfig() {
  certificate "$1" "$2"
  cat >"$state/etc/$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{ name: node, cluster: { server: "https://127.0.0.1:6443", certificate-authority: $state/pki/ca.crt } }]
users: [{ name: $1, user: { client-certificate: $state/pki/$1.crt, client-key: $state/pki/$1.key } }]
contexts: [{ name: node, context: { cluster: node, user: $1 } }]
current-context: node
YAML
}

configure() {
  rm -rf "$state"
  mkdir -p "$state"/{pki,etc/net.d,log,var,helm}
  openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=node-authority -keyout "$state/pki/ca.key" -out "$state/pki/ca.crt" 2>/dev/null
  openssl genrsa -out "$state/pki/accounts.key" 2048 2>/dev/null
  openssl rsa -in "$state/pki/accounts.key" -pubout -out "$state/pki/accounts.pub" 2>/dev/null
  certificate api /CN=kube-apiserver "IP:127.0.0.1,IP:$address,IP:10.96.0.1,DNS:kubernetes.default.svc"
  certificate api-to-kubelet /O=system:masters/CN=api-to-kubelet
  kubeconfig admin /O=system:masters/CN=admin
  kubeconfig manager /CN=system:kube-controller-manager
  kubeconfig scheduler /CN=system:kube-scheduler
  kubeconfig proxy /CN=system:kube-proxy
  kubeconfig kubelet /O=system:nodes/CN=system:node:node-1
  local file
  for file in containerd.toml kubelet.yaml bridge.conflist; do
    sed -e "s|@FOLDER@|$folder|g; s|@STATE@|$state|g; s|@GROUP@|$group|g; s|@ADDRESS@|$address|g" \
      "scripts/kubernetes/node/$file" >"$state/etc/$file"
  done
  mv "$state/etc/bridge.conflist" "$state/etc/net.d/"
}

up() {
  [ "$(id -u)" = 0 ] || { echo "kubernetes: it needs root" >&2 && exit 1; }
  if [ -n "$(groups)" ]; then echo "kubernetes: there is a node already, or what is left of one: $0 down" >&2 && exit 1; fi
  configure
  # A version 1 control group must be given its CPUs and memory nodes before anything can run in it.
  local controller
  for controller in /sys/fs/cgroup/*/; do
    if [ -e "$controller/tasks" ]; then mkdir -p "$controller/$group"; fi
  done
  cat /sys/fs/cgroup/cpuset/cpuset.cpus >"/sys/fs/cgroup/cpuset/$group/cpuset.cpus"
  cat /sys/fs/cgroup/cpuset/cpuset.mems >"/sys/fs/cgroup/cpuset/$group/cpuset.mems"
  # shellcheck disable=SC2016 # the inner shell's own id and arguments
  setsid sh -c 'echo $$ >"$0/cgroup.procs" && echo $$ >"$1/init.pid" && shift && exec unshare --mount --net --uts "$@"' \
    "/sys/fs/cgroup/cpuset/$group" "$state" scripts/kubernetes/node/init.sh "$folder" "$state" $address $services \
    >"$state/log/init.log" 2>&1 </dev/null &
  until_holds 10 "the first process of the node" grep -q kubernetes/node/init.sh "/proc/$!/cmdline"
  until_holds 120 "the API" "$0" run kubectl get --raw /readyz
  until_holds 60 "the account that pods run as" "$0" run kubectl get serviceaccount default
  until_holds 120 "the node" "$0" run kubectl wait --for=condition=Ready node/node-1 --timeout=1s
  echo "kubernetes: node-1 is ready after $SECONDS s"
}

down() {
  local end=$((SECONDS + 20))
  # Again for those that others started meanwhile.
  while [ -n "$(processes)" ] && [ $SECONDS -lt $end ]; do
    processes | xargs --no-run-if-empty kill -KILL 2>/dev/null || true
    sleep 0.1
  done
  while [ -n "$(groups)" ] && [ $SECONDS -lt $end ]; do
    groups | while read -r one; do find "$one" -depth -type d -exec rmdir {} \; 2>/dev/null || true; done
    sleep 0.2
  done
  rm -rf --one-file-system "${state:?}/var"
  if [ -n "$(groups)" ]; then echo "kubernetes: control groups are left: $(groups | tr '\n' ' ')" >&2 && exit 1; fi
}

case ${1:-} in
  up) up ;;
  down) down ;;
  run) shift && run "$@" ;;
  processes) processes ;;
  *) echo "usage: scripts/kubernetes/node.sh up | run COMMAND... | processes | down" >&2 && exit 2 ;;
esac
