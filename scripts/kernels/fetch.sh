# shellcheck shell=bash
# For scripts that boot Debian's kernels in virtual machines, to be sourced: packages fetched and unpacked without being
# installed, and the first files of a machine. They set `work`, the folder where packages are kept.
work=${work:?}

# have_tools TOOL...: reports missing tools.
have_tools() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || {
      echo "not run: $tool is not installed; scripts/setup.sh kernels says how to get it"
      return 1
    }
  done
}

# unpacked PACKAGE: its files, downloaded if necessary; prints the folder.
unpacked() {
  local package=$1 folder=$work/$1
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
  echo "$folder"
}

# kernel VERSION: the newest kernel whose version begins with this; prints its folder.
kernel() {
  local package folder
  # 6.1 means 6.1.0-50, and not 6.12.
  package=$(apt-cache search --names-only "^linux-image-$1[.][0-9].*-cloud-amd64\$" | awk '{print $1}' | sort -V | tail -n 1)
  if [ -n "$package" ]; then
    unpacked "$package"
    return
  fi
  folder=$(find "$work" -maxdepth 1 -type d -name "linux-image-$1.*" | sort -V | tail -n 1)
  [ -n "$folder" ] || {
    echo "apt has no kernel linux-image-$1.*-cloud-amd64" >&2
    return 1
  }
  echo "$folder"
}

# put_program ROOT FILE NAME [LIBRARIES]: copies a program into ROOT/bin without its symbols, and each of its libraries
# to where the loader looks for it; libraries that this machine lacks come from the folders LIBRARIES (separated by
# colons).
put_program() {
  local root=$1 file=$2 name=$3 libraries=${4:-} library found
  strip -o "$root/bin/$name" "$file"
  while read -r library; do
    case $library in
      *'=> not found'*)
        echo "$name needs ${library%% *}, which is nowhere" >&2
        return 1
        ;;
    esac
    found=$(grep -o '/[^ ]*' <<<"$library" | head -n 1) || continue
    if [ -e "$root$found" ]; then continue; fi
    cp -L --parents "$found" "$root"
  done < <(LD_LIBRARY_PATH=$libraries ldd "$file")
}

# put_modules ROOT KERNEL MODULE...: copies modules of the kernel unpacked in a folder, and their dependencies, into
# ROOT/modules, numbered in the order in which they must be loaded.
put_modules() {
  local root=$1 kernel=$2 release number=10 module
  shift 2
  release=$(basename "$kernel"/lib/modules/*)
  depmod -b "$kernel" "$release"
  while read -r _ module; do
    number=$((number + 1))
    case $module in
      *.xz) xz -dc "$module" >"$root/modules/$number-$(basename "$module" .xz)" ;;
      *) cp "$module" "$root/modules/$number-$(basename "$module")" ;;
    esac
  done < <(for module in "$@"; do modprobe -d "$kernel" -S "$release" --show-depends "$module"; done | awk '$1 == "insmod" && !seen[$2]++')
}

# begin_root ROOT INIT: the folder of a machine, with its first process.
begin_root() {
  local root=$1 init=$2
  rm -rf "$root"
  mkdir -p "$root"/{bin,etc,modules,lib,lib64}
  cp "$(command -v busybox)" "$root/bin/busybox"
  cp "$init" "$root/init"
  printf 'root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$root/etc/passwd"
  printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
}

# pack ROOT FILE: packs the folder in the form that a kernel accepts.
pack() { (cd "$1" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$2"; }
