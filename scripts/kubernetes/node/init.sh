#!/usr/bin/env bash
# The first process of the node, in its own namespaces: `init.sh FOLDER STATE ADDRESS SERVICES`. Sets up mounts and
# network, then starts the programs of Kubernetes.
set -euo pipefail
folder=$1 state=$2 address=$3 services=$4
export PATH="$folder/bin:$folder/unpacked/usr/bin:$folder/unpacked/usr/sbin:$PATH"

# The /sys of this network namespace, with the mounts below it: kubelet and `spangap isolate` look for devices there.
mkdir -p "$state/var/sys"
mount --rbind /sys "$state/var/sys"
mount -t sysfs sysfs /sys
for below in fs/cgroup fs/bpf kernel/tracing kernel/debug kernel/security; do
  if mountpoint -q "$state/var/sys/$below"; then mount --rbind "$state/var/sys/$below" "/sys/$below"; fi
done
# Made shared only now; otherwise, whatever is mounted over /sys would also cover its copy.
mount --make-rshared /
mount -t tmpfs tmpfs /run
mkdir -p /run/netns "$state/var/lib" "$state/var/log"
mount --bind "$state/var/lib" /var/lib
mount --bind "$state/var/log" /var/log
# Settings that kubelet would make for the whole machine go into files of the node.
for setting in vm/overcommit_memory:1 vm/panic_on_oom:0 kernel/panic:10 kernel/panic_on_oops:1; do
  own=/run/sysctl-$(basename "${setting%:*}")
  echo "${setting#*:}" >"$own"
  mount --bind "$own" "/proc/sys/${setting%:*}"
done
hostname node-1

ip link set lo up
ip address add 10.96.0.10/32 dev lo
ip link add node0 type bridge
ip address add "$address/24" dev node0
ip link set node0 up
ip route add default via "$address"
echo 1 >/proc/sys/net/ipv4/ip_forward

log() { echo "$state/log/$1.log"; }
etcd --data-dir /var/lib/etcd --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 --unsafe-no-fsync >"$(log etcd)" 2>&1 &
containerd --config "$state/etc/containerd.toml" >"$(log containerd)" 2>&1 &
nice -n 15 kube-apiserver --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 --bind-address=0.0.0.0 --advertise-address="$address" \
  --tls-cert-file="$state/pki/api.crt" --tls-private-key-file="$state/pki/api.key" --client-ca-file="$state/pki/ca.crt" \
  --authorization-mode=Node,RBAC --service-cluster-ip-range="$services" --allow-privileged=true \
  --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$state/pki/accounts.pub" \
  --service-account-signing-key-file="$state/pki/accounts.key" --kubelet-preferred-address-types=InternalIP \
  --kubelet-client-certificate="$state/pki/api-to-kubelet.crt" --kubelet-client-key="$state/pki/api-to-kubelet.key" \
  >"$(log apiserver)" 2>&1 &

answers() { kubectl --kubeconfig "$state/etc/admin.kubeconfig" get --raw /readyz >/dev/null 2>&1; }
until answers; do sleep 0.2; done
nice -n 15 kube-controller-manager --kubeconfig="$state/etc/manager.kubeconfig" --leader-elect=false --use-service-account-credentials=true \
  --authentication-kubeconfig="$state/etc/manager.kubeconfig" --authorization-kubeconfig="$state/etc/manager.kubeconfig" \
  --root-ca-file="$state/pki/ca.crt" --service-account-private-key-file="$state/pki/accounts.key" \
  --controllers='*,-node-ipam-controller,-node-route-controller' >"$(log manager)" 2>&1 &
nice -n 15 kube-scheduler --kubeconfig="$state/etc/scheduler.kubeconfig" --leader-elect=false \
  --authentication-kubeconfig="$state/etc/scheduler.kubeconfig" --authorization-kubeconfig="$state/etc/scheduler.kubeconfig" \
  >"$(log scheduler)" 2>&1 &
# Pods on one bridge would answer each other without address translation: calls to services come from the node.
nice -n 15 kube-proxy --kubeconfig="$state/etc/proxy.kubeconfig" --hostname-override=node-1 --proxy-mode=iptables \
  --cluster-cidr=10.88.7.0/24 --masquerade-all --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 \
  >"$(log proxy)" 2>&1 &
nice -n 15 kubelet --config="$state/etc/kubelet.yaml" --kubeconfig="$state/etc/kubelet.kubeconfig" --hostname-override=node-1 \
  --node-ip="$address" >"$(log kubelet)" 2>&1 &

# Service names for pods: dnsmasq reads them from a file that is kept up to date with the services. A service without an
# address of its own has those of its pods.
touch /run/names
dnsmasq --keep-in-foreground --no-resolv --no-hosts --addn-hosts=/run/names --address=/#/ --listen-address=10.96.0.10 \
  --bind-interfaces --user=root --pid-file= --conf-file=/dev/null >"$(log names)" 2>&1 &
names=$!
of='{.metadata.name}{"."}{.metadata.namespace}{".svc.cluster.local"}{"\n"}'
ask() { kubectl --kubeconfig "$state/etc/admin.kubeconfig" get --all-namespaces "$@" 2>/dev/null; }
while true; do
  {
    ask services -o jsonpath="{range .items[?(@.spec.clusterIP!='None')]}{.spec.clusterIP}{' '}$of{end}"
    ask endpoints --selector service.kubernetes.io/headless -o jsonpath="{range .items[*]}{.subsets[0].addresses[0].ip}{' '}$of{end}" | grep '^[0-9]'
  } >/run/names.new || true
  if ! cmp -s /run/names.new /run/names; then
    cat /run/names.new >/run/names
    kill -HUP $names
  fi
  sleep 1
done
