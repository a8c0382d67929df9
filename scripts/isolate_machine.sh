#!/usr/bin/env bash
# Tests `spangap isolate` on other machines: boots Debian's kernels in virtual machines (QEMU, software emulation) with eight CPUs,
# two nodes and a NIC with four queues, under traffic; plans, applies, kills and rolls back there, and judges the result from the
# files of /proc and /sys rather than from spangap's output. `scripts/isolate_machine.sh [RUN...]`,
# where a run is a version and a kind of cpusets: 6.1:v1, 6.1:v2, 6.12:v2.
# SPANGAP sets the binary; by default the dev build is made and used. CASES selects cases of scripts/isolate_machine/cases.sh; by
# default all are run. Needs root for the NIC's other end, a tap in a separate network namespace; installs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

runs=("$@")
[ ${#runs[@]} -gt 0 ] || runs=(6.1:v1 6.1:v2 6.12:v2)
BOOT_TIMEOUT=${BOOT_TIMEOUT:-420}
# One thread per emulated CPU, or one for all of them (`single`).
THREADS=${THREADS:-multi}
MODULES=(virtio_pci virtio_net)
# Source of irqbalance's libraries on a machine that lacks them.
IRQBALANCE_NEEDS=(libnuma1 libglib2.0-0 libcap-ng0 libncursesw6 libtinfo6 libsystemd0)

work=$PWD/target/kernels
mkdir -p "$work"
# shellcheck source=scripts/kernels/fetch.sh
. scripts/kernels/fetch.sh
have_tools qemu-system-x86_64 busybox depmod dpkg-deb apt-get node ip cc || exit 0
not_run() {
  echo "not run: $*"
  exit 0
}
[ "$(id -u)" = 0 ] || not_run "the NIC's other end needs root"
[ -c /dev/net/tun ] || not_run "there is no /dev/net/tun"

if [ -z "${SPANGAP:-}" ]; then
  cargo build --quiet --locked --package spangap
  SPANGAP=${CARGO_TARGET_DIR:-target}/debug/spangap
fi

# Names contain the process id, so that concurrent runs do not collide.
here=isolate-$$
traffic=
clean() {
  if [ -n "$traffic" ]; then
    kill "$traffic" 2>/dev/null || true
    wait "$traffic" 2>/dev/null || true
    traffic=
  fi
  ip netns del "$here" 2>/dev/null || true
  rm -rf "$work/$here".*
}
trap clean EXIT
trap 'exit 130' INT TERM

ip netns add "$here" || not_run "network namespaces cannot be made"
at_home() { ip netns exec "$here" "$@"; }

# put_irqbalance ROOT: the distribution's, with its libraries.
put_irqbalance() {
  local folder package libraries=
  folder=$(unpacked irqbalance) || return 1
  if ldd "$folder/usr/sbin/irqbalance" | grep -q 'not found'; then
    for package in "${IRQBALANCE_NEEDS[@]}"; do
      libraries+=:$(unpacked "$package")/usr/lib/$(uname -m)-linux-gnu || return 1
    done
  fi
  put_program "$1" "$folder/usr/sbin/irqbalance" irqbalance "${libraries#:}"
}

# initramfs FOLDER FILE: the first files of a machine with the kernel in a folder.
initramfs() {
  local root=$work/$here.root
  begin_root "$root" scripts/isolate_machine/init
  mkdir -p "$root/cases"
  cp scripts/isolate_machine/*.sh "$root/cases"
  cc -O1 -static -o "$root/bin/worker" scripts/isolate_machine/worker.c
  put_program "$root" "$SPANGAP" spangap
  put_irqbalance "$root" || echo "not run: what takes irqbalance"
  put_modules "$root" "$1" "${MODULES[@]}"
  pack "$root" "$2"
  rm -rf "$root"
}

# boot RUN NUMBER KERNEL: runs a machine from boot to shutdown; its output goes to a log.
boot() {
  local run=$1 number=$2 kernel=$3 tap=tap$2 initrd=$work/$here.$2.initrd log=$work/isolate-$1.log status=0
  initramfs "$kernel" "$initrd"
  at_home ip tuntap add dev "$tap" mode tap multi_queue
  at_home ip addr add "10.77.$number.1/24" dev "$tap"
  at_home ip link set "$tap" up
  ip netns exec "$here" node scripts/isolate_machine/traffic.mjs "10.77.$number.2" &
  traffic=$!
  # A hanging machine is killed; its output until then is evaluated.
  at_home timeout --kill-after=5 "$BOOT_TIMEOUT" qemu-system-x86_64 \
    -accel "tcg,thread=$THREADS" -cpu max,vendor=GenuineIntel -M q35 -m 2G \
    -nodefaults -no-reboot -display none -serial stdio \
    -smp 8,sockets=2,cores=2,threads=2 \
    -object memory-backend-ram,id=m0,size=1G -object memory-backend-ram,id=m1,size=1G \
    -numa node,nodeid=0,cpus=0-3,memdev=m0 -numa node,nodeid=1,cpus=4-7,memdev=m1 -numa dist,src=0,dst=1,val=21 \
    -device pxb-pcie,id=pxb1,bus_nr=128,numa_node=1,bus=pcie.0 \
    -device pcie-root-port,id=rp1,bus=pxb1,chassis=1,slot=1 \
    -netdev "tap,id=n0,ifname=$tap,script=no,downscript=no,queues=4" \
    -device virtio-net-pci,netdev=n0,mq=on,vectors=10,bus=rp1 \
    -kernel "$kernel"/boot/vmlinuz-* -initrd "$initrd" \
    -append "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off cpusets=${run#*:} address=10.77.$number.2 cases=${CASES:-all}" \
    </dev/null >"$log" 2>&1 || status=$?
  [ "$status" = 0 ] || echo "the machine of $run did not end by itself: $status (see $log)"
  kill "$traffic" 2>/dev/null || true
  wait "$traffic" 2>/dev/null || true
  traffic=
  at_home ip link del "$tap"
  rm -f "$initrd"
}

reports=()
for run in "${runs[@]}"; do
  kernel=$(kernel "${run%%:*}") || { echo "not run: no kernel for $run" && continue; }
  echo "== $run: $(basename "$kernel")"
  boot "$run" "${#reports[@]}" "$kernel"
  # With a thread per CPU, the emulation occasionally lets a CPU run code that another one is patching.
  if grep -aq 'Oops: int3' "$work/isolate-$run.log"; then
    echo "the emulation failed; again with one thread for all CPUs"
    THREADS=single boot "$run" "${#reports[@]}" "$kernel"
  fi
  reports+=("$run=$work/isolate-$run.log")
done
[ ${#reports[@]} -gt 0 ] || exit 0
node scripts/isolate_machine/report.mjs scripts/isolate_machine/checks.mjs "${reports[@]}"
