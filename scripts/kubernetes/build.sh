#!/usr/bin/env bash
# Builds the programs of a one-node Kubernetes from their Go modules, and unpacks Debian's packages of the rest:
# containerd, runc, the bridge plugins, etcd. Everything goes below target/kubernetes; nothing is installed. Takes 20
# CPU minutes the first time.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/kubernetes/folder.sh

version=$(sed -n 's/^require k8s.io\/kubernetes \(v[0-9.]*\)$/\1/p' scripts/kubernetes/programs/go.mod)
stamped=k8s.io/component-base/version
minor=${version#v1.}
flags="-s -w -X $stamped.gitVersion=$version -X $stamped.gitMajor=1 -X $stamped.gitMinor=${minor%.*} -X $stamped.gitTreeState=clean"
for program in kubectl kubelet kube-apiserver kube-scheduler kube-controller-manager kube-proxy; do
  # kubectl has a verb for it, the others an option.
  if { "$folder/bin/$program" --version || "$folder/bin/$program" version --client; } 2>/dev/null | grep "$version$" >/dev/null; then continue; fi
  echo "kubernetes: building $program $version" >&2
  (cd scripts/kubernetes/programs && go build -buildvcs=false -trimpath -ldflags "$flags" -o "$folder/bin/$program" "k8s.io/kubernetes/cmd/$program")
done

parts=(containerd runc containernetworking-plugins etcd-server etcd-client)
if [ "$(cat "$folder/unpacked/parts" 2>/dev/null)" != "${parts[*]}" ]; then
  rm -rf "$folder/unpacked" "$folder/packages"
  mkdir -p "$folder/unpacked" "$folder/packages"
  # apt downloads as a separate user, who has no access here, and warns about it on every run.
  (cd "$folder/packages" && apt-get download -q "${parts[@]}" 2>&1 | grep -v -e 'unsandboxed' >&2)
  for package in "$folder/packages"/*.deb; do dpkg-deb -x "$package" "$folder/unpacked"; done
  echo "${parts[*]}" >"$folder/unpacked/parts"
fi
