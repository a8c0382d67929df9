# shellcheck shell=bash
# Sourced by the scripts beside it, from the top of the repository: where a node's programs and its state are.
folder=${SPANGAP_KUBERNETES:-$PWD/target/kubernetes}
mkdir -p "$folder/bin"
export PATH="$folder/bin:$folder/unpacked/usr/bin:$folder/unpacked/usr/sbin:$PATH"
