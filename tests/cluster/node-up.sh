#!/bin/bash
# Starts the local node and waits until it is Ready. What a killed run left behind is removed first.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/env.sh
. "$HERE/env.sh"
# shellcheck source=tests/cluster/lib.sh
. "$HERE/lib.sh"
# shellcheck source=tests/cluster/network.sh
. "$HERE/network.sh"
# shellcheck source=tests/cluster/pki.sh
. "$HERE/pki.sh"
# shellcheck source=tests/cluster/daemons.sh
. "$HERE/daemons.sh"

answers() { kubectl get --raw=/readyz --request-timeout=5s; }
node_is_ready() { [ "$(kubectl get node "$NODE_NAME" -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}')" = True ]; }

# All daemons run, the API server answers and the node is Ready. A busy machine gets a minute before it is given up.
is_up() {
  local daemon
  [ -f "$KUBECONFIG" ] || return 1
  for daemon in "${DAEMONS[@]}"; do is_running "$daemon" || return 1; done
  wait_for 60 answers && wait_for 60 node_is_ready
}

make_folders() {
  mkdir -p "$STATE"/{pki,logs,etcd,kubelet,cni,loaded,cilium/{lib,run,bpf,cgroup,host}}
  mkdir -p "$STATE/volumes" "$STATE/containerd"
  # The root of a user-namespaced container walks down to its root file system.
  chmod 0711 "$STATE" "$STATE/containerd"
  echo "$CLUSTER_HOME" > "$STATE/home"
}

# With cgroup v1 a new cpuset is empty and holds no process.
fill_cpuset() {
  local file
  for file in cpuset.cpus cpuset.mems; do
    if [ -f "$1/$file" ] && [ -z "$(cat "$1/$file")" ]; then cat "$1/../$file" > "$1/$file"; fi
  done
}

# With cgroup v2 the controllers are handed down one by one.
hand_down() {
  local controller
  for controller in cpu cpuset io memory pids; do
    echo "+$controller" > "$1/cgroup.subtree_control" || say "warning: no cgroup controller $controller"
  done
}

make_cgroups() {
  local root
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then hand_down /sys/fs/cgroup; fi
  while read -r root; do
    mkdir -p "$root"
    fill_cpuset "$root"
  done < <(cgroup_roots)
}

start_node() {
  make_folders
  make_cgroups
  make_network
  make_pki
  start_etcd
  start_containerd
  wait_for 30 in_node curl -fsS http://127.0.0.1:2379/health || die "etcd does not answer; see $STATE/logs/etcd.log"
  start_apiserver
  wait_for 90 answers || die "the API server does not answer; see $STATE/logs/apiserver.log"
  start_controller_manager
  start_scheduler
  start_kubelet
  start_kube_proxy
  start_cilium_operator
  start_cilium_agent
  wait_for 30 test -S "$STATE/containerd.sock" || die "containerd does not start; see $STATE/logs/containerd.log"
  "$HERE/load.sh" "$CLUSTER_HOME/pause.tar"
  wait_for 120 node_is_ready || die "the node does not become Ready; see $STATE/logs"
  kubectl apply -f "$HERE/config/runtimeclass.yaml" -f "$HERE/config/class-standard.yaml" -f "$HERE/config/class-small.yaml" >/dev/null
  "$HERE/volumes.sh" create
}

main() {
  local begin=$SECONDS
  [ "$(id -u)" -eq 0 ] || die "the local node needs root (or a Docker engine, for kind)"
  lock /run/lock
  "$HERE/packages.sh" node
  "$HERE/build.sh"
  if is_up; then
    "$HERE/volumes.sh" recycle
    say "the node is up"
    return
  fi
  "$HERE/node-down.sh" --locked
  start_node
  say "the node is Ready after $((SECONDS - begin)) s"
}

main "$@"
