#!/usr/bin/env bash
# Builds spangap as `make dist` does, but for old systems: the binary starts with glibc 2.28 (RHEL 8, Debian 10) and
# everything newer. `scripts/portable.sh` writes target/package/spangap and its symbols beside it. The C compiler and the
# linker are zig's, which contains the symbol versions of every glibc; it needs what `scripts/setup.sh packages` installs.
set -euo pipefail
cd "$(dirname "$0")/.."

glibc=2.28
host=$(rustc -vV | sed -n 's/^host: //p')
zig=$PWD/target/tools/zig
[ -x "$zig/bin/cargo-zigbuild" ] || { echo "portable: cargo-zigbuild is missing: run scripts/setup.sh packages" >&2 && exit 1; }
export PATH="$zig/bin:$PATH" PYTHONPATH="$zig"

# libelf and zlib are the distribution's. zig is given these alone: the headers beside them are those of a newer glibc. It
# takes an archive for `-lelf` only by way of a linker script.
needs=$PWD/target/tools/portable
rm -rf "$needs"
mkdir -p "$needs/include" "$needs/lib"
for header in libelf.h gelf.h zlib.h zconf.h; do
  found=$(echo "#include <$header>" | cc -E - | sed -n "s/^# 1 \"\(.*\/$header\)\".*/\1/p" | head -n 1)
  ln -s "$found" "$needs/include/$header"
done
for name in elf z; do
  found=$(cc -print-file-name=lib$name.a)
  [ -f "$found" ] || { echo "portable: lib$name.a is missing: the package with $name.h usually brings it" >&2 && exit 1; }
  echo "INPUT($(realpath "$found"))" >"$needs/lib/lib$name.so"
done
export LIBBPF_SYS_LIBRARY_PATH=$needs/lib
# The names of files in panics and symbols do not tell where it was built: builds in two folders are to be equal.
registry=${CARGO_HOME:-$HOME/.cargo}
export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$registry=/cargo --remap-path-prefix=$PWD=/spangap"
export "CFLAGS_${host//-/_}=-isystem $needs/include -ffile-prefix-map=$registry=/cargo -ffile-prefix-map=$PWD=/spangap"
# zig compiles the start-up code and the unwinder where it links, and their symbols would tell that folder. It goes by PWD, if that
# leads to the same place. Nothing compiled elsewhere is reused.
export ZIG_GLOBAL_CACHE_DIR=$PWD/target/tools/zig-cache
PWD=/proc/self/cwd cargo zigbuild --profile dist --locked --package spangap --target "$host.$glibc"

binary=target/$host/dist/spangap
newest=$(objdump -T "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
if [ "$(printf '%s\n' "GLIBC_$glibc" "$newest" | sort -V | tail -n 1)" != "GLIBC_$glibc" ]; then
  echo "portable: $binary needs $newest: it would not start with glibc $glibc" >&2
  exit 1
fi
# The symbols count as well: the program contains a checksum of theirs.
for folder in "$registry" "$PWD"; do
  if [ "$folder" != /spangap ] && grep --quiet --text --fixed-strings -e "$folder" "$binary"; then
    echo "portable: $binary names the folder $folder: built elsewhere, it would differ" >&2
    exit 1
  fi
done
scripts/strip.sh "$binary"
