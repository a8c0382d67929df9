#!/usr/bin/env bash
# The lab on machines that this one may not be: boots Debian's kernels in virtual machines (QEMU, software emulation), which
# have netem and control groups of version 2 alone, makes runs there, kills some, and judges what came of it.
# `scripts/lab_machine.sh [VERSION...]`, where a version is 6.1 or 6.12.
# SPANGAP names the binary, else the dev build is made and used. CASES names cases of scripts/lab_machine/cases.sh, with commas
# between, else all are run. Nothing is installed, and no root is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

runs=("$@")
[ ${#runs[@]} -gt 0 ] || runs=(6.1 6.12)
BOOT_TIMEOUT=${BOOT_TIMEOUT:-1200}
# One thread for each emulated CPU, or one for all of them (`single`).
THREADS=${THREADS:-multi}
# What the lab uses and Debian has as modules.
MODULES=(veth bridge sch_netem tun tcp_diag)
# Programs that the lab starts. Those of busybox are too small, and its shell takes them all the same: the lab gets another.
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

# Names with the process id: two of these at once do not meet.
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

# boot RUN KERNEL: a machine from its beginning to its end; what it said is left in a log.
boot() {
  local run=$1 kernel=$2 initrd=$work/$here.initrd log=$work/lab-$1.log status=0
  initramfs "$kernel" "$initrd"
  # A machine that hangs is ended; what it said until then is looked at.
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
  # With a thread for each, the emulation now and then lets a CPU run into code that another one is just patching.
  if grep -aq 'Oops: int3' "$work/lab-$run.log"; then
    echo "the emulation failed; again with one thread for all CPUs"
    THREADS=single boot "$run" "$kernel"
  fi
  reports+=("$run=$work/lab-$run.log")
done
[ ${#reports[@]} -gt 0 ] || exit 0
node scripts/isolate_machine/report.mjs scripts/lab_machine/checks.mjs "${reports[@]}"
