#!/bin/bash
# The persistent volumes of the local node: folders of the host. usage: volumes.sh create|recycle
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/env.sh
. "$HERE/env.sh"
# shellcheck source=tests/cluster/lib.sh
. "$HERE/lib.sh"

# volume NAME CLASS SIZE
volume() {
  cat <<MANIFEST
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: $1}
spec:
  capacity: {storage: $3}
  accessModes: [ReadWriteOnce, ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: $2
  hostPath: {path: $STATE/volumes/$1, type: Directory}
MANIFEST
}

# folder NAME: every user may write, also one without a name on the host.
folder() { mkdir -p "$STATE/volumes/$1"; }
open_up() { chmod 0777 "$STATE/volumes/$1"; }

create() {
  local i
  for i in $(seq "$VOLUMES"); do
    folder "local-$i"; open_up "local-$i"
    volume "local-$i" standard 20Gi
  done
  for i in $(seq "$SMALL_VOLUMES"); do
    folder "small-$i"
    mount -t tmpfs -o "size=${SMALL_VOLUME_SIZE%i}" sb-small "$STATE/volumes/small-$i"
    open_up "small-$i"
    volume "small-$i" small "$SMALL_VOLUME_SIZE"
  done
}

# A volume whose claim is gone keeps its data and serves nobody else; empty it and offer it again.
recycle() {
  local name
  kubectl get pv -o jsonpath='{range .items[?(@.status.phase=="Released")]}{.metadata.name}{"\n"}{end}' |
    while read -r name; do
      [ -d "$STATE/volumes/$name" ] || continue
      find "$STATE/volumes/$name" -mindepth 1 -delete
      open_up "$name"
      kubectl patch pv "$name" --type=json -p '[{"op": "remove", "path": "/spec/claimRef"}]' >/dev/null
    done
}

case ${1:-} in
  create) create | kubectl apply -f - >/dev/null ;;
  recycle) lock "$STATE"; recycle ;;
  *) die "usage: volumes.sh create|recycle" ;;
esac
