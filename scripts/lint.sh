#!/usr/bin/env bash
# Every check that needs no test run. Runs all of them, and fails if one does.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

failed=()
step() { # step NAME COMMAND...
  local name=$1
  shift
  echo "== $name"
  "$@" </dev/null || failed+=("$name")
}

go_formatted() { # go_formatted FOLDER...: lists the files that gofmt would change
  local files
  files=$(gofmt -l "$@") || return 1
  if [ -n "$files" ]; then
    printf 'gofmt would change %s\n' "$files"
    return 1
  fi
}

step format cargo fmt --all --check
step house cargo run --quiet --locked --package spangap-house
step clippy cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
step page-types npm --prefix web run --silent check
if command -v gofmt >/dev/null; then
  step go-format go_formatted clients/go
else
  echo "not run: gofmt is not installed"
fi
if command -v shellcheck >/dev/null; then
  step shell shellcheck scripts/*.sh scripts/kubernetes/*.sh scripts/kubernetes/node/init.sh scripts/packages/*.sh deploy/kustomize/*.sh deploy/debian/* scripts/captures/*.sh scripts/kernels/init scripts/kernels/fetch.sh scripts/isolate_machine/init scripts/isolate_machine/*.sh scripts/lab_machine/init scripts/lab_machine/*.sh .ci/run
else
  echo "not run: shellcheck is not installed"
fi

if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
echo "lint: clean"
