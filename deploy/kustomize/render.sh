#!/usr/bin/env bash
# Writes the kustomize base anew from the chart: `deploy/kustomize/render.sh`; `--check` says whether it is what the chart
# renders. Needs helm.
set -euo pipefail
cd "$(dirname "$0")"

file=base/spangap.yaml
if ! command -v helm >/dev/null; then
  echo "not run: the kustomize base: there is no helm (make test-deploy builds it)"
  exit 0
fi
# Labels that name a chart would be of no use here.
text=$(helm template spangap ../helm/spangap --kube-version 1.34.0 --namespace spangap --values values.yaml |
  grep -v -e '^ *helm.sh/chart: ' -e '^ *app.kubernetes.io/managed-by: ' -e '^# Source: ')
if [ "${1:-}" = --check ]; then
  [ "$text" = "$(cat $file)" ] || { echo "deploy/kustomize/$file is not what the chart renders: run deploy/kustomize/render.sh" >&2 && exit 1; }
else
  printf '%s\n' "$text" >$file
fi
