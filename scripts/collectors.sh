#!/usr/bin/env bash
# Several meters behind a real Collector that distributes spans by trace id: one is added and one killed under load, and what they count
# is compared with the truth. Everything runs in a network and with a list of hosts of its own. Needs root and go; SPANGAP names the
# binary, target/release/spangap otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."

not_run() { echo "not run: meters behind a balancing Collector: $1" && exit 0; }
[ "$(id -u)" = 0 ] || not_run "it needs root, for a network of its own"
for tool in go ip unshare python3; do command -v $tool >/dev/null || not_run "there is no $tool"; done

spangap=$(realpath "${SPANGAP:-target/release/spangap}")
collector=$PWD/target/balancing-collector
(cd scripts/collector/balancing && go build -buildvcs=false -trimpath -ldflags '-s -w' -o "$collector" .) || not_run "the Collector cannot be built, see above"
export PYTHONPATH=$PWD/scripts/kafka PYTHONDONTWRITEBYTECODE=1
exec unshare --net --mount --pid --fork --kill-child --mount-proc python3 scripts/collectors/test.py "$spangap" "$collector"
