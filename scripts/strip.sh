#!/usr/bin/env bash
# Separates the symbols from a binary: `scripts/strip.sh [BINARY]` writes target/package/spangap and, next to it, spangap.debug.
# BINARY defaults to target/dist/spangap. Debuggers, perf and the program's own backtraces find the symbols through the link in the program.
set -euo pipefail
cd "$(dirname "$0")/.."

from=${1:-target/dist/spangap}
out=target/package
[ -x "$from" ] || { echo "strip: $from is missing: run make dist" >&2 && exit 1; }
mkdir -p "$out"
objcopy --only-keep-debug --compress-debug-sections=zlib "$from" "$out/spangap.debug"
chmod 644 "$out/spangap.debug"
# In the folder of the symbols, because the link contains only their file's name.
cd "$out"
objcopy --strip-all --add-gnu-debuglink=spangap.debug "$OLDPWD/$from" spangap
size() { awk -v bytes="$(stat -c %s "$1")" 'BEGIN { printf "%.1f MiB", bytes / 1048576 }'; }
echo "$out/spangap: $(size spangap); its symbols, $out/spangap.debug: $(size spangap.debug)"
