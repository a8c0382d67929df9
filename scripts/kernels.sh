#!/usr/bin/env bash
# Tests the binary on other kernels: boots Debian's kernels in virtual machines (QEMU, software emulation), one after the other, runs
# every verb of `spangap host` and `spangap sockets` there, and the agent, and reports which of them work: as root, without type
# information, and as an ordinary user. `scripts/kernels.sh [RUN...]`, where a run is
# the beginning of a version, and optionally a state of lockdown: 6.1, 6.12, 6.12:confidentiality.
# SPANGAP sets the binary; by default the dev build is made and used. Installs nothing, and needs no root.
set -euo pipefail
cd "$(dirname "$0")/.."
# Lists of modules can be made by an ordinary user as well.
PATH=$PATH:/usr/sbin:/sbin

runs=("$@")
[ ${#runs[@]} -gt 0 ] || runs=(6.1 6.12 6.1:confidentiality 6.12:confidentiality)
BOOT_TIMEOUT=${BOOT_TIMEOUT:-300}
# Kernel features that the verbs use and Debian builds as modules.
MODULES=(veth tcp_diag)

work=$PWD/target/kernels
mkdir -p "$work"
# shellcheck source=scripts/kernels/fetch.sh
. scripts/kernels/fetch.sh
have_tools qemu-system-x86_64 busybox depmod dpkg-deb apt-get node || exit 0

if [ -z "${SPANGAP:-}" ]; then
  cargo build --quiet --locked --package spangap
  SPANGAP=${CARGO_TARGET_DIR:-target}/debug/spangap
fi

# initramfs FOLDER: the first files of a machine with the kernel in it, into FOLDER/initrd.
initramfs() {
  local root=$1/root
  begin_root "$root" scripts/kernels/init
  put_program "$root" "$SPANGAP" spangap
  put_modules "$root" "$1" "${MODULES[@]}"
  pack "$root" "$1/initrd"
  rm -rf "$root"
}

failed=0
reports=()
for run in "${runs[@]}"; do
  version=${run%%:*}
  # Lockdown makes no difference to users who may not load anything anyway.
  lockdown=
  others=others
  [ "$run" = "$version" ] || { lockdown=${run#*:} && others=; }
  kernel=$(kernel "$version") || { echo "not run: no kernel for $run" && continue; }
  initramfs "$kernel"
  log=$work/$run.log
  echo "== $run: $(basename "$kernel")${lockdown:+, lockdown=$lockdown}"
  # A hanging machine is killed; its output until then is evaluated. One thread for all CPUs: with more, the emulation lets a CPU
  # run code that another one is patching, as the kernel does when a probe is attached.
  timeout --kill-after=5 "$BOOT_TIMEOUT" qemu-system-x86_64 -accel tcg,thread=single -cpu max,vendor=GenuineIntel -M q35 -m 1G \
    -smp 2 -nodefaults -no-reboot -display none -serial stdio \
    -kernel "$kernel"/boot/vmlinuz-* -initrd "$kernel/initrd" \
    -append "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off $others ${lockdown:+lockdown=$lockdown}" \
    </dev/null >"$log" 2>&1 || echo "the machine of $run did not end by itself (see $log)"
  reports+=("$run=$log")
done
[ ${#reports[@]} -gt 0 ] || exit 0
node scripts/kernels/report.mjs "${reports[@]}" || failed=$?
exit "$failed"
