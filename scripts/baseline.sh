#!/usr/bin/env bash
# Builds the minimal programs that `make bench-tank` compares with, into target/baseline. A program whose toolchain is missing is
# left out with a message; the benchmark then reports it as not run.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$PWD/target/baseline
mkdir -p "$out"
cc -O2 -Wall -Wextra -pthread -o "$out/pingpong" tools/tank-bench/baseline/pingpong.c
if pkg-config --exists grpc++ && command -v grpc_cpp_plugin protoc >/dev/null; then
  make --no-print-directory --silent -C tools/tank-bench/baseline OUT="$out" all
else
  echo "the gRPC C++ baselines are not built: no grpc++ (package libgrpc++-dev), protoc or grpc_cpp_plugin" >&2
fi
if command -v go >/dev/null; then
  go -C clients/go build -buildvcs=false -o "$out/go_plain" ./plain
else
  echo "the Go baseline is not built: no go (package golang-go)" >&2
fi
