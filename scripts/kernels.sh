#!/usr/bin/env bash
# The same binary on other kernels: boots Debian's kernels in virtual machines (QEMU, software emulation), one after the
# other, runs every verb of `spangap host` and `spangap sockets` there, and says which of them works: as root, without
# type information, and as an ordinary user. `scripts/kernels.sh [RUN...]`, where a run is
# the beginning of a version, and optionally a state of lockdown: 6.1, 6.12, 6.12:confidentiality.
# SPANGAP names the binary, else the dev build is made and used. Nothing is installed, and no root is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
# An ordinary user may make lists of modules as well.
PATH=$PATH:/usr/sbin:/sbin

runs=("$@")
[ ${#runs[@]} -gt 0 ] || runs=(6.1 6.12 6.1:confidentiality 6.12:confidentiality)
BOOT_TIMEOUT=${BOOT_TIMEOUT:-300}
# What the verbs use and Debian has as modules.
MODULES=(veth tcp_diag)

work=$PWD/target/kernels
mkdir -p "$work"
for tool in qemu-system-x86_64 busybox depmod dpkg-deb apt-get node; do
  command -v "$tool" >/dev/null || {
    echo "not run: $tool is not installed; scripts/setup.sh kernels says how to get it"
    exit 0
  }
done

if [ -z "${SPANGAP:-}" ]; then
  cargo build --quiet --locked --package spangap
  SPANGAP=${CARGO_TARGET_DIR:-target}/debug/spangap
fi

# fetch VERSION: unpacks the newest kernel that begins with it, prints its folder.
fetch() {
  local package folder
  # 6.1 is 6.1.0-50, and not 6.12.
  package=$(apt-cache search --names-only "^linux-image-$1[.][0-9].*-cloud-amd64\$" | awk '{print $1}' | sort -V | tail -n 1)
  folder=$(find "$work" -maxdepth 1 -type d -name "linux-image-$1.*" | sort -V | tail -n 1)
  if [ -n "$package" ]; then
    folder=$work/$package
    if [ ! -d "$folder" ]; then
      rm -rf "$folder.part" "$work/deb"
      mkdir -p "$work/deb"
      if ! (cd "$work/deb" && apt-get download -qq "$package" >&2); then
        echo "cannot download $package" >&2
        return 1
      fi
      dpkg-deb -x "$work/deb/"*.deb "$folder.part"
      rm -rf "$work/deb"
      mv "$folder.part" "$folder"
    fi
  fi
  [ -n "$folder" ] || {
    echo "apt has no kernel linux-image-$1.*-cloud-amd64" >&2
    return 1
  }
  echo "$folder"
}

# initramfs FOLDER: the first files of a machine, into FOLDER/initrd.
initramfs() {
  local kernel=$1 release root number=10 module library
  release=$(basename "$kernel"/lib/modules/*)
  root=$kernel/root
  rm -rf "$root"
  mkdir -p "$root"/{bin,etc,modules,lib,lib64}
  cp "$(command -v busybox)" "$root/bin/busybox"
  cp scripts/kernels/init "$root/init"
  strip -o "$root/bin/spangap" "$SPANGAP"
  # Each library where the loader looks for it.
  while read -r library; do cp -L --parents "$library" "$root"; done < <(ldd "$SPANGAP" | grep -o '/[^ ]*')
  printf 'root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$root/etc/passwd"
  printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
  depmod -b "$kernel" "$release"
  # In the order in which they have to be loaded.
  while read -r _ module; do
    number=$((number + 1))
    case $module in
      *.xz) xz -dc "$module" >"$root/modules/$number-$(basename "$module" .xz)" ;;
      *) cp "$module" "$root/modules/$number-$(basename "$module")" ;;
    esac
  done < <(for module in "${MODULES[@]}"; do modprobe -d "$kernel" -S "$release" --show-depends "$module"; done | awk '!seen[$2]++')
  (cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$kernel/initrd"
  rm -rf "$root"
}

failed=0
reports=()
for run in "${runs[@]}"; do
  version=${run%%:*}
  # Lockdown changes nothing for those who may load nothing anyway.
  lockdown=
  others=others
  [ "$run" = "$version" ] || { lockdown=${run#*:} && others=; }
  kernel=$(fetch "$version") || { echo "not run: no kernel for $run" && continue; }
  initramfs "$kernel"
  log=$work/$run.log
  echo "== $run: $(basename "$kernel")${lockdown:+, lockdown=$lockdown}"
  # A machine that hangs is ended; what it said until then is looked at. One thread for all its CPUs: with more, the
  # emulation lets a CPU run into code that another one is just patching, as the kernel does when a probe is attached.
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
