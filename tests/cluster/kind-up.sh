#!/bin/bash
# Starts the local cluster with kind and waits until it is Ready.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/env.sh
. "$HERE/env.sh"
# shellcheck source=tests/cluster/lib.sh
. "$HERE/lib.sh"

PARTS=(kind kubectl gvisor helm kwok)

is_up() { kubectl get --raw=/readyz --request-timeout=5s >/dev/null 2>&1; }

# Volumes of 16 MiB for the tests that fill one; kind's own storage class `standard` serves the rest.
small_volumes() {
  local i node=$KIND_CLUSTER-control-plane path
  for i in $(seq "$SMALL_VOLUMES"); do
    path=/var/securebench-volumes/small-$i
    or_node docker exec "$node" sh -c "mkdir -p $path && mount -t tmpfs -o size=${SMALL_VOLUME_SIZE%i},mode=0777 small $path"
    cat <<MANIFEST
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: small-$i}
spec:
  capacity: {storage: $SMALL_VOLUME_SIZE}
  accessModes: [ReadWriteOnce, ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: small
  hostPath: {path: $path, type: Directory}
MANIFEST
  done
}

start_cluster() {
  or_node kind delete cluster --name "$KIND_CLUSTER"
  or_node kind create cluster --config <(sed "s#@BIN@#$BIN#g" "$HERE/kind.yaml") --kubeconfig "$KUBECONFIG" --wait 180s
  or_node kubectl apply -f "$HERE/config/runtimeclass.yaml" -f "$HERE/config/class-small.yaml" >/dev/null
  small_volumes | or_node kubectl apply -f - >/dev/null
}

main() {
  "$HERE/packages.sh" base
  lock "$CLUSTER_HOME"
  if is_up; then
    say "the cluster is up"
    return
  fi
  or_node "$HERE/build.sh" "${PARTS[@]}"
  start_cluster
}

main "$@"
