#!/usr/bin/env bash
# Checks the licences and the origin of the Rust packages that are linked into spangap (deny.toml), and lists all of
# them for those who answer for what runs on their hosts: `scripts/licences.sh [OUT]` writes OUT/spangap.cdx.json, a
# bill of materials in CycloneDX (OUT defaults to target/package). Needs what `scripts/setup.sh licences` installs.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-target/package}
export PATH="$PWD/target/tools/bin:$PATH"
for tool in cargo-deny cargo-cyclonedx; do
  command -v $tool >/dev/null || { echo "licences: $tool is missing: run scripts/setup.sh licences" >&2 && exit 1; }
done
cargo deny --locked check licenses bans sources
mkdir -p "$out"
# It writes a file next to the manifest of every package in the workspace; only the program's is needed.
name=spangap.cdx-$$
trap 'find crates tools -name "$name.json" -delete' EXIT
# The time of the commit and no serial number, so that the same sources make the same list.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH
cargo cyclonedx --quiet --format json --spec-version 1.5 --target all --override-filename "$name" --manifest-path crates/cli/Cargo.toml
# Our own crates are named by their location in the sources, not on the build machine.
sed "s|file://$PWD/|file:///|g" "crates/cli/$name.json" >"$out/spangap.cdx.json"
if grep -n -e "$PWD" -e "${CARGO_HOME:-$HOME/.cargo}" "$out/spangap.cdx.json" >&2; then
  echo "licences: $out/spangap.cdx.json names folders of this machine" >&2
  exit 1
fi
echo "licences: $out/spangap.cdx.json"
