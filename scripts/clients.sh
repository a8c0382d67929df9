#!/usr/bin/env bash
# Builds the programs of the non-Rust stacks: `scripts/clients.sh [OUT]`; OUT defaults to target/clients. A program whose toolchain
# is missing is left out, with a message that names it; an error in our code is an error. Without changes it takes only as long as
# make and go need to notice that.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-target/clients}
mkdir -p "$out"
out=$(cd "$out" && pwd)
export PATH="$PWD/target/tools/bin:$PATH"
failed=()

not_built() { # not_built PROGRAM WHY: what an earlier build left is gone too, lest it be taken for this one
  rm -f "$out/$1"
  echo "$1 is not built: $2" >&2
}

build_cpp() {
  if ! command -v make >/dev/null; then
    not_built spangap-cpp "no make (package make)"
    return
  fi
  local said status=0
  said=$(make --silent --no-print-directory -C clients/cpp OUT="$out" try 2>&1) || status=$?
  [ -z "$said" ] || printf '%s\n' "$said" | grep -v "Nothing to be done for" >&2 || true
  local why
  why=$(sed -n 's/^spangap-cpp is not built: //p' <<<"$said")
  case $why in
    "") [ $status = 0 ] && [ -x "$out/spangap-cpp" ] ;;
    *compiler\ failed*) return 1 ;;
    *) rm -f "$out/spangap-cpp" ;;
  esac
}

build_go() {
  local wanted found
  wanted=$(sed -n 's/^go //p' clients/go/go.mod)
  if ! command -v go >/dev/null; then
    not_built spangap-go "no go (package golang-go; $wanted or newer)"
    return
  fi
  # Inside the module this fails where go is too old and may not, or cannot, fetch the one that go.mod asks for.
  if ! go -C clients/go version >/dev/null 2>&1; then
    found=$(cd / && go version 2>/dev/null) || true
    not_built spangap-go "go $wanted or newer is missing (package golang-go; found: ${found:-one that does not start})"
    return
  fi
  if ! go -C clients/go mod download >&2; then
    not_built spangap-go "its modules cannot be fetched, see above"
    return
  fi
  go -C clients/go build -buildvcs=false -o "$out/spangap-go" . >&2
}

build_cpp || failed+=(spangap-cpp)
build_go || failed+=(spangap-go)
if [ ${#failed[@]} -gt 0 ]; then
  echo "scripts/clients.sh: cannot build ${failed[*]}: see above" >&2
  exit 1
fi
