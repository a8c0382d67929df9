#!/usr/bin/env bash
# Makes a container image of the binary from `make packages`, without a daemon and without a base image: `scripts/image.sh [NAME:TAG]
# [FILE]` writes a docker-archive, which `docker load`, `podman load`, `ctr images import` and `skopeo copy docker-archive:FILE`
# read. It contains only the program and the few libraries that it is linked against, no shell. The image is reproducible. SPANGAP
# sets another binary.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=${SPANGAP:-target/package/spangap}
[ -x "$binary" ] || { echo "image: $binary is missing: run make packages" >&2 && exit 1; }
version=$("$binary" --version | awk '{print $2}')
name=${1:-spangap:$version}
file=${2:-target/package/spangap-image.tar}
case $name in *:*) ;; *) name=$name:$version ;; esac
case $(uname -m) in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) arch=$(uname -m) ;; esac
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

root=$work/root
mkdir -p "$root"/{usr/bin,etc/spangap,tmp,var/lib/spangap}
chmod 1777 "$root/tmp"
install -m 755 "$binary" "$root/usr/bin/spangap"
# Each library at the path where the binary looks for it, and the loader.
ldd "$binary" | grep -o '/[^ ]*' | while read -r library; do install -D -m 755 "$(realpath "$library")" "$root$library"; done
printf 'root:x:0:0:root:/:/sbin/nologin\nspangap:x:65532:65532:spangap:/var/lib/spangap:/sbin/nologin\n' >"$root/etc/passwd"
printf 'root:x:0:\nspangap:x:65532:\n' >"$root/etc/group"
mkdir -p "$root/usr/share/doc/spangap"
install -m 644 LICENSE "$root/usr/share/doc/spangap/copyright"

packed() { tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu "$@"; }
mkdir "$work/image"
packed --file "$work/layer.tar" --directory "$root" .
layer=$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)
mkdir "$work/image/$layer"
mv "$work/layer.tar" "$work/image/$layer/layer.tar"
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
cat >"$work/config.json" <<JSON
{"architecture":"$arch","os":"linux","created":"$created","config":{"User":"65532:65532","Entrypoint":["/usr/bin/spangap"],"WorkingDir":"/",
"ExposedPorts":{"4317/tcp":{},"4318/tcp":{},"7070/tcp":{}},"Labels":{"org.opencontainers.image.title":"spangap","org.opencontainers.image.version":"$version","org.opencontainers.image.licenses":"Apache-2.0"}},
"rootfs":{"type":"layers","diff_ids":["sha256:$layer"]},"history":[{"created":"$created","created_by":"scripts/image.sh"}]}
JSON
config=$(sha256sum "$work/config.json" | cut -d ' ' -f 1)
mv "$work/config.json" "$work/image/$config.json"
printf '[{"Config":"%s.json","RepoTags":["%s"],"Layers":["%s/layer.tar"]}]\n' "$config" "$name" "$layer" >"$work/image/manifest.json"
mkdir -p "$(dirname "$file")"
packed --file "$file" --directory "$work/image" .
echo "$file: $name, $(awk -v bytes="$(stat -c %s "$file")" 'BEGIN { printf "%.1f MiB", bytes / 1048576 }'), sha256:$config"
