#!/usr/bin/env bash
# Installs the Debian packages in a bare Debian, upgrades, removes and purges them, and checks the result of each step:
# `scripts/deb_root.sh [SUITE]`; SUITE defaults to bookworm. Needs root, debootstrap, and the binary of `make dist` or, failing that,
# of the tests. Services are not started, because no init runs there.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=${1:-bookworm}
not_run() { echo "not run: the packages in a bare Debian: $1" && exit 0; }
[ "$(id -u)" = 0 ] || not_run "it needs root"
command -v debootstrap >/dev/null || not_run "there is no debootstrap"
work=$(mktemp -d)
root=$work/root
clean() {
  if mountpoint -q "$root/proc"; then umount "$root/proc"; fi
  rm -rf --one-file-system "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

binary=target/package/spangap
if [ ! -x $binary ]; then
  [ -x target/debug/spangap ] || not_run "there is no binary: run make dist"
  objcopy --strip-all target/debug/spangap "$work/spangap"
  binary=$work/spangap
fi
export SPANGAP=$binary COMPRESS=none
scripts/deb.sh "$work/packages"
debootstrap --variant=minbase "$suite" "$root" >"$work/debootstrap.log" 2>&1 || { tail -n 5 "$work/debootstrap.log" && not_run "debootstrap $suite failed"; }
mount -t proc proc "$root/proc"
cp "$work"/packages/*.deb "$root/"

inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
holds() { # holds WHAT COMMAND...: inside of the root
  local what=$1
  shift
  inside sh -c "$*" || { echo "deb_root: it does not hold: $what" >&2 && exit 1; }
  echo "ok: $what"
}

inside sh -c 'apt-get install --yes --no-install-recommends /spangap*.deb' >"$work/install.log" 2>&1 || { tail -n 20 "$work/install.log" && exit 1; }
holds "the program starts" 'spangap --version'
holds "its man page is there" 'test -s /usr/share/man/man1/spangap-meter.1.gz'
holds "the services have a user that nobody logs in as" 'getent passwd spangap | grep -q /usr/sbin/nologin'
holds "the settings are there" 'test -f /etc/spangap/meter.toml -a -f /etc/spangap/agent.env'
holds "the meter starts as that user, with these settings" \
  'install -d -o spangap /var/lib/spangap && { su -s /bin/sh spangap -c "timeout -s INT 10 spangap meter --config /etc/spangap/meter.toml --http 127.0.0.1:0 --otlp-grpc 127.0.0.1:0 --otlp-http 127.0.0.1:0" >/meter.out 2>&1; grep -q "^ready" /meter.out || { cat /meter.out; false; }; }'
echo 'history-age = "3d"' >>"$root/etc/spangap/meter.toml"
holds "a reinstallation keeps changed settings" 'dpkg -i /spangap*.deb >/dev/null && grep -q 3d /etc/spangap/meter.toml'
holds "removal keeps the settings and the history" \
  'dpkg -r spangap-agent spangap-meter spangap >/dev/null && test -f /etc/spangap/meter.toml -a -d /var/lib/spangap && ! command -v spangap'
holds "a purge leaves nothing" \
  'dpkg -P spangap-agent spangap-meter spangap >/dev/null 2>&1 && ! test -e /etc/spangap -o -e /var/lib/spangap && ! dpkg -l | grep -q spangap'
echo "the packages in a bare $suite: all held"
