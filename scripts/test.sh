#!/usr/bin/env bash
# Runs every test of the workspace and of the page, all of them even when one fails, and sums up.
# A test that cannot run on this machine prints a line `not run: WHY`; these are repeated and counted at the end.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

logs=target/test-logs
rm -rf $logs
mkdir -p $logs
failed=()

step() { # step NAME COMMAND...: shows and keeps the output
  local name=$1
  shift
  echo "== $name: $*"
  "$@" 2>&1 </dev/null | tee "$logs/$name.log" || failed+=("$name")
}

# The tests run the dev build: one compilation serves unit tests, integration tests and the binary they start.
# --show-output, because a passing test's `not run:` line would otherwise be swallowed.
step rust cargo test --workspace --locked --no-fail-fast -- --show-output
step page-types npm --prefix web run --silent check
step page npm --prefix web run --silent test
if go -C clients/go version >/dev/null 2>&1; then
  step go-vet go -C clients/go vet ./...
  # -v, because a passing test's `not run:` line would otherwise be swallowed.
  step go go -C clients/go test -v ./...
else
  echo "not run: the tests of clients/go need the go that clients/go/go.mod asks for" | tee $logs/go.log
fi

echo
echo "== summary"
# Result lines are `test result: ok. 12 passed; 0 failed; …`.
awk '/^test result:/ { passed += $4; failed += $6 } END { printf "rust: %d passed, %d failed\n", passed, failed }' $logs/rust.log
awk '/^--- PASS/ { passed++ } /^--- FAIL/ { failed++ } END { printf "go: %d passed, %d failed\n", passed, failed }' $logs/go.log
mapfile -t not_run < <(grep -hoE '(^|[^[:alnum:]`])not run: .*' $logs/*.log | sed 's/^[^n]*//' | sort | uniq)
echo "not run: ${#not_run[@]}"
for line in "${not_run[@]}"; do echo "  ${line#not run: }"; done
if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
echo "all passed"
