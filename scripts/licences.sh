#!/usr/bin/env bash
# Checks under which licences the Rust packages come that are linked into spangap, and where from (deny.toml), and lists all of
# them for whoever has to answer for what runs on their hosts: `scripts/licences.sh [OUT]` writes OUT/spangap.cdx.json, a bill
# of materials in CycloneDX (OUT is target/package). Needs what `scripts/setup.sh licences` installs.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-target/package}
export PATH="$PWD/target/tools/bin:$PATH"
for tool in cargo-deny cargo-cyclonedx; do
  command -v $tool >/dev/null || { echo "licences: $tool is missing: run scripts/setup.sh licences" >&2 && exit 1; }
done
cargo deny --locked check licenses bans sources
mkdir -p "$out"
# It writes beside the manifest of every package of the workspace; only the program's is wanted.
name=spangap.cdx-$$
trap 'find crates tools -name "$name.json" -delete' EXIT
# Of the commit, without a serial number: the same sources make the same list.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH
cargo cyclonedx --quiet --format json --spec-version 1.5 --target all --override-filename "$name" --manifest-path crates/cli/Cargo.toml
# Our own crates are named by where they lie: in the sources, not on the machine that builds.
sed "s|file://$PWD/|file:///|g" "crates/cli/$name.json" >"$out/spangap.cdx.json"
if grep -n -e "$PWD" -e "${CARGO_HOME:-$HOME/.cargo}" "$out/spangap.cdx.json" >&2; then
  echo "licences: $out/spangap.cdx.json names folders of this machine" >&2
  exit 1
fi
echo "licences: $out/spangap.cdx.json"
