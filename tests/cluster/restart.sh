#!/bin/bash
# Kills a daemon of the local node and starts it again. Nobody else starts or stops the node meanwhile.
# usage: restart.sh NAME SECONDS
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/env.sh
. "$HERE/env.sh"
# shellcheck source=tests/cluster/lib.sh
. "$HERE/lib.sh"
# shellcheck source=tests/cluster/daemons.sh
. "$HERE/daemons.sh"

declare -A STARTERS=(
  [etcd]=start_etcd
  [containerd]=start_containerd
  [kube-apiserver]=start_apiserver
  [kube-controller-manager]=start_controller_manager
  [kube-scheduler]=start_scheduler
  [kubelet]=start_kubelet
  [kube-proxy]=start_kube_proxy
  [cilium-operator-generic]=start_cilium_operator
  [cilium-agent]=start_cilium_agent
)

main() {
  local name=$1 seconds=$2 starter=${STARTERS[$1]:-}
  [ "$SECUREBENCH_CLUSTER" = node ] || die "only the daemons of the local node can be restarted, this cluster is $SECUREBENCH_CLUSTER"
  [ -n "$starter" ] || die "no daemon $name: one of ${!STARTERS[*]}"
  lock /run/lock
  is_running "$name" || die "$name does not run"
  kill_hard "$name"
  wait_for 10 not_running "$name" || die "$name does not end"
  sleep "$seconds"
  "$starter"
}

main "$@"
