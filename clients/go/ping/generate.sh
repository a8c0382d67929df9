#!/bin/sh
# Writes the Go code of ping.proto into the folder $1, with the generators named in go.mod.
set -eu
out=$1
cd "$(dirname "$0")"
proto=../../../crates/bench/proto
name=spangap/ping/v1/ping.proto
package=spangap/clients/go/ping
generators=$(mktemp -d)
trap 'rm -rf "$generators"' EXIT
go build -o "$generators/" tool
protoc --plugin="$generators/protoc-gen-go" --plugin="$generators/protoc-gen-go-grpc" -I $proto \
  --go_out="$out" --go_opt=M$name=$package,module=$package \
  --go-grpc_out="$out" --go-grpc_opt=M$name=$package,module=$package $name
