#!/usr/bin/env bash
# Tests the lab on other machines: boots Debian's kernels in virtual machines (QEMU, software emulation) that have netem
# and only version 2 control groups, makes runs there, kills some, and checks the results. `scripts/lab_machine.sh
# [VERSION...]`, where a version is 6.1 or 6.12. SPANGAP sets the binary; by default the dev build is made and used.
# CASES selects cases of scripts/lab_machine/cases.sh, separated by commas; by default all are run. Installs nothing,
# and needs no root.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

runs=("$@")
[ ${#runs[@]} -gt 0 ] || runs=(6.1 6.12)
BOOT_TIMEOUT=${BOOT_TIMEOUT:-1200}
# One thread per emulated CPU, or one for all of them (`single`).
THREADS=${THREADS:-multi}
# Kernel features that the lab uses and Debian builds as modules.
MODULES=(veth bridge sch_netem tun tcp_diag)
# Programs that the lab starts. Those of busybox lack features, and its shell prefers them, so the lab gets another
# shell.
PROGRAMS=(sh ip tc nsenter unshare chrt taskset nice)

work=$PWD/target/kernels
mkdir -p "$work"
# shellcheck source=scripts/kernels/fetch.sh
. scripts/kernels/fetch.sh
have_tools qemu-system-x86_64 busybox depmod dpkg-deb apt-get node "${PROGRAMS[@]}" || exit 0

if [ -z "${SPANGAP:-}" ]; then
  cargo build --quiet --locked --package spangap
  SPANGAP=${CARGO_TARGET_DIR:-target}/debug/spangap
fi

# Names contain the process id, so that concurrent runs do not collide.
here=lab-$$
trap 'rm -rf "$work/$here".*' EXIT

# initramfs KERNEL FILE: the first files of a machine with the kernel in a folder.
initramfs() {
  local root=$work/$here.root program
  begin_root "$root" scripts/lab_machine/init
  mkdir -p "$root/cases"
  cp scripts/lab_machine/cases.sh scripts/isolate_machine/look.sh "$root/cases"
  put_program "$root" "$SPANGAP" spangap
  for program in "${PROGRAMS[@]}"; do
    put_program "$root" "$(command -v "$program")" "$program"
  done
  put_modules "$root" "$1" "${MODULES[@]}"
  pack "$root" "$2"
  rm -rf "$root"
}

# boot RUN KERNEL: runs a machine from boot to shutdown; its output goes to a log.
boot() {
  local run=$1 kernel=$2 initrd=$work/$here.initrd log=$work/lab-$1.log status=0
  initramfs "$kernel" "$initrd"
  # A hanging machine is killed; its output until then is evaluated.
  timeout --kill-after=5 "$BOOT_TIMEOUT" qemu-system-x86_64 \
    -accel "tcg,thread=$THREADS" -cpu max,vendor=GenuineIntel -M q35 -m 2G \
    -smp 2 -nodefaults -no-reboot -display none -serial stdio \
    -kernel "$kernel"/boot/vmlinuz-* -initrd "$initrd" \
    -append "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off cases=${CASES:-all}" \
    </dev/null >"$log" 2>&1 || status=$?
  [ "$status" = 0 ] || echo "the machine of $run did not end by itself: $status (see $log)"
}

reports=()
for run in "${runs[@]}"; do
  kernel=$(kernel "$run") || { echo "not run: no kernel for $run" && continue; }
  echo "== $run: $(basename "$kernel")"
  boot "$run" "$kernel"
  # With a thread per CPU, the emulation occasionally lets a CPU run code that another one is patching.
  if grep -aq 'Oops: int3' "$work/lab-$run.log"; then
    echo "the emulation failed; again with one thread for all CPUs"
    THREADS=single boot "$run" "$kernel"
  fi
  reports+=("$run=$work/lab-$run.log")
done
[ ${#reports[@]} -gt 0 ] || exit 0
node scripts/isolate_machine/report.mjs scripts/lab_machine/checks.mjs "${reports[@]}"
