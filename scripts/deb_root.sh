#!/usr/bin/env bash
# Installs the Debian packages in bare root file systems, uses them there, upgrades, removes and purges them, and checks the result
# of each step: `scripts/deb_root.sh [SUITE...]`; SUITE defaults to bookworm. It is a suite that debootstrap can fetch, or the folder of
# a root file system, which is copied. Needs root, debootstrap, and the binary of `make packages` or, failing that, of the tests,
# which starts on this machine's distribution and newer ones. Services are not started, because no init runs there.
set -euo pipefail
cd "$(dirname "$0")/.."

suites=("${@:-bookworm}")
capture=fixtures/strangers/grpc-python-overlay.client.pcapng.zst
not_run() { echo "not run: the packages in a bare ${suites[*]}: $1" && exit 0; }
[ "$(id -u)" = 0 ] || not_run "it needs root"
for tool in debootstrap unshare ip; do command -v $tool >/dev/null || not_run "there is no $tool"; done
work=$(mktemp -d)
root=
clean() {
  if [ -n "$root" ] && mountpoint -q "$root/proc"; then umount "$root/proc"; fi
  rm -rf --one-file-system "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

binary=target/package/spangap
if [ ! -x $binary ]; then
  [ -x target/debug/spangap ] || not_run "there is no binary: run make packages"
  objcopy --strip-all target/debug/spangap "$work/spangap"
  binary=$work/spangap
fi
export SPANGAP=$binary COMPRESS=none
scripts/deb.sh "$work/packages"
# The same again as an older version, to upgrade from.
VERSION=0.0.1 scripts/deb.sh "$work/older"

inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
holds() { # holds WHAT COMMAND...: inside of the root
  local what=$1
  shift
  inside sh -c "$*" || { echo "deb_root: it does not hold: $what" >&2 && exit 1; }
  echo "ok: $what"
}
# On a network of its own, and with the kernel's own files; all mounts end with it.
walk() {
  cp scripts/packages/walk.sh "$root/walk.sh"
  cp "$capture" "$root/"
  # shellcheck disable=SC2016 # $0 and $1 are those of the inner shell
  unshare --mount --net sh -c 'ip link set lo up && mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" &&
    exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin /walk.sh "/$1"' "$root" "${capture##*/}"
}
# What an installation from its own file leaves behind: nothing of a version that was upgraded, nothing after a purge.
files() { inside sh -c 'find / -xdev -name "*spangap*" -not -path "/proc/*" -not -path "/walk.sh" -not -path "/spangap*.deb" -not -path "/older/*" | sort'; }

in_suite() {
  local suite=$1
  root=$work/root
  if [ -d "$suite" ]; then
    cp -a "$suite" "$root"
  elif ! debootstrap --variant=minbase "$suite" "$root" >"$work/debootstrap.log" 2>&1; then
    tail -n 5 "$work/debootstrap.log"
    echo "not run: the packages in a bare $suite: debootstrap failed"
    return
  fi
  mount -t proc proc "$root/proc"
  cp "$work"/packages/*.deb "$root/"
  cp -r "$work/older" "$root/older"

  inside sh -c 'apt-get install --yes --no-install-recommends /older/spangap*.deb' >"$work/install.log" 2>&1 || { tail -n 20 "$work/install.log" && exit 1; }
  echo 'history-age = "3d"' >>"$root/etc/spangap/meter.toml"
  inside install -d -o spangap /var/lib/spangap
  holds "an upgrade, which keeps changed settings" \
    'dpkg -l "spangap*" | grep -q "^ii .* 0\.0\.1 " && dpkg -i /spangap*.deb >/dev/null && ! dpkg -l "spangap*" | grep "^ii .* 0\.0\.1 " && grep -q 3d /etc/spangap/meter.toml'
  holds "the program starts" 'spangap --version'
  holds "its man page is there" 'test -s /usr/share/man/man1/spangap-meter.1.gz'
  holds "the services have a user that nobody logs in as" 'getent passwd spangap | grep -q /usr/sbin/nologin'
  holds "the settings are there" 'test -f /etc/spangap/meter.toml -a -f /etc/spangap/agent.env'
  holds "the meter starts as that user, with these settings" \
    '{ su -s /bin/sh spangap -c "timeout -s INT 10 spangap meter --config /etc/spangap/meter.toml --http 127.0.0.1:0 --otlp-grpc 127.0.0.1:0 --otlp-http 127.0.0.1:0" >/meter.out 2>&1; grep -q "^ready" /meter.out || { cat /meter.out; false; }; }'
  walk
  holds "a reinstallation keeps changed settings" 'dpkg -i /spangap*.deb >/dev/null && grep -q 3d /etc/spangap/meter.toml'
  holds "removal keeps the settings and the history" \
    'dpkg -r spangap-agent spangap-meter spangap >/dev/null && test -f /etc/spangap/meter.toml -a -d /var/lib/spangap && ! command -v spangap'
  holds "a purge removes the packages" 'dpkg -P spangap-agent spangap-meter spangap >/dev/null 2>&1 && ! dpkg -l | grep -q spangap'
  if [ -n "$(files)" ]; then files >&2 && echo "deb_root: a purge left these behind" >&2 && exit 1; fi
  echo "ok: a purge leaves nothing"
  umount "$root/proc"
  rm -rf --one-file-system "$root"
  echo "the packages in a bare $suite: all held"
}
for suite in "${suites[@]}"; do in_suite "$suite"; done
