#!/usr/bin/env bash
# Makes three Debian packages of the binary from `make packages`: `scripts/deb.sh [OUT]`; OUT defaults to target/package. spangap
# contains the program, its man pages and completions, spangap-meter and spangap-agent their services and settings. The packages are
# reproducible. Needs dpkg-dev; SPANGAP sets another binary, COMPRESS another compression, VERSION another version.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=${SPANGAP:-target/package/spangap}
out=${1:-target/package}
[ -x "$binary" ] || { echo "deb: $binary is missing: run make packages" >&2 && exit 1; }
for tool in dpkg-deb dpkg-shlibdeps; do
  command -v $tool >/dev/null || { echo "deb: the program $tool is missing: install the package dpkg-dev" >&2 && exit 1; }
done
binary=$(realpath "$binary")
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=${VERSION:-$("$binary" --version | awk '{print $2}')}
arch=$(dpkg --print-architecture)
# Of the commit, so that the same sources make the same files.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH

put() { install -D -m "$1" "$2" "$3"; } # put MODE FILE TO

# The oldest libraries that the binary starts with, as Debian's own packages say it. Of glibc it is the binary's newest symbol:
# since 2.34 its libraries are one, and Debian takes that version for the first with any of their functions.
libraries() {
  local glibc
  glibc=$(objdump -T "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
  mkdir -p "$work/libraries/debian"
  printf 'Source: spangap\n\nPackage: spangap\nArchitecture: any\n' >"$work/libraries/debian/control"
  (cd "$work/libraries" && dpkg-shlibdeps -O "$binary" 2>/dev/null) |
    sed -n "s/^shlibs:Depends=//; s/libc6 (>= [^)]*)/libc6 (>= ${glibc#GLIBC_})/p"
}

# pack NAME DEPENDS SUMMARY < LONG_DESCRIPTION: of what is below $work/NAME; maintainer scripts are in deploy/debian.
pack() {
  local name=$1 depends=$2 summary=$3 root=$work/$1 script
  put 644 LICENSE "$root/usr/share/doc/$name/copyright"
  mkdir -p "$root/DEBIAN"
  {
    printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: The authors of spangap <spangap@localhost>\n' "$name" "$version" "$arch"
    printf 'Section: net\nPriority: optional\nInstalled-Size: %s\n' "$(du -sk --apparent-size "$root" | cut -f 1)"
    [ -z "$depends" ] || printf 'Depends: %s\n' "$depends"
    # `demo`, `lab` and the stories make network namespaces.
    [ "$name" != spangap ] || printf 'Recommends: iproute2\n'
    printf 'Description: %s\n' "$summary"
    sed 's/^$/./; s/^/ /'
  } >"$root/DEBIAN/control"
  for script in postinst prerm postrm; do
    if [ -f "deploy/debian/$name.$script" ]; then put 755 "deploy/debian/$name.$script" "$root/DEBIAN/$script"; fi
  done
  if [ -d "$root/etc" ]; then (cd "$root" && find etc -type f -printf '/%p\n' | sort) >"$root/DEBIAN/conffiles"; fi
  find "$root" -type d -exec chmod 755 {} +
  find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Z"${COMPRESS:-xz}" --build "$root" "$out/${name}_${version}_$arch.deb" >/dev/null
  echo "$out/${name}_${version}_$arch.deb"
}

root=$work/spangap
put 755 "$binary" "$root/usr/bin/spangap"
"$binary" man "$root/usr/share/man/man1" >/dev/null
gzip -9n "$root"/usr/share/man/man1/*
mkdir -p "$root"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
"$binary" completions bash >"$root/usr/share/bash-completion/completions/spangap"
"$binary" completions zsh >"$root/usr/share/zsh/vendor-completions/_spangap"
"$binary" completions fish >"$root/usr/share/fish/vendor_completions.d/spangap.fish"
for file in deploy/grafana/*.json deploy/prometheus/{rules,alerts}.yaml deploy/collector/*.yaml; do
  put 644 "$file" "$root/usr/share/spangap/${file#deploy/}"
done
pack spangap "$(libraries)" "finds where an RPC's time goes between client and server" <<'TEXT'
The client says 100 ms, the server says 10 ms: spangap measures that gap for every call, shows which part of the call it sits
in, names the cause with its evidence, and helps to fix it on a running system.
TEXT

root=$work/spangap-meter
put 644 deploy/systemd/spangap-meter.service "$root/lib/systemd/system/spangap-meter.service"
put 644 deploy/systemd/meter.toml "$root/etc/spangap/meter.toml"
pack spangap-meter "spangap (= $version), passwd" "the meter of spangap, as a service" <<'TEXT'
Receives spans by OTLP on this host and shows the gap of every pair of services at http://127.0.0.1:7070/.
TEXT

root=$work/spangap-agent
put 644 deploy/systemd/spangap-agent.service "$root/lib/systemd/system/spangap-agent.service"
put 640 deploy/systemd/agent.env "$root/etc/spangap/agent.env"
pack spangap-agent "spangap (= $version), passwd" "the agent of spangap, as a service" <<'TEXT'
Keeps the last packets and scheduler events of this host in memory, for the meter to ask for. It is not started when it is
installed: name the meter in /etc/spangap/agent.env, then run: systemctl enable --now spangap-agent
TEXT
