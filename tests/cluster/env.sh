# shellcheck shell=bash
# shellcheck disable=SC2034  # read by the scripts that source this file
# Settings of the local cluster: versions, folders, addresses. Sourced, never run.

SECUREBENCH_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/securebench
CLUSTER_HOME=${SECUREBENCH_CLUSTER_HOME:-$SECUREBENCH_CACHE/cluster}
BIN=$CLUSTER_HOME/bin
CNI=$CLUSTER_HOME/cni
SRC=$CLUSTER_HOME/src

# Outside every home folder: the root of a user-namespaced container must be able to walk down to it.
STATE=${SECUREBENCH_NODE_STATE:-/var/lib/securebench-node}

NODE_NAME=sb-node
NETNS=sbnode
HOST_VETH=sbhost
HOST_IP=172.29.0.1
NODE_IP=172.29.0.2
POD_CIDR=10.244.0.0/16
SERVICE_CIDR=10.96.0.0/16
# Every container of this node, and nothing else, runs below this cgroup.
CGROUP=securebench-node

KUBERNETES_VERSION=1.36.3
CONTAINERD_VERSION=2.4.2
RUNC_VERSION=1.5.2
CNI_PLUGINS_VERSION=1.9.1
ETCD_VERSION=3.7.3
CILIUM_VERSION=1.15.19
GVISOR_VERSION=v0.0.0-20260905035102-160fafc42237
HELM_VERSION=4.3.1
KWOK_VERSION=0.8.0
KIND_VERSION=0.33.0

VOLUMES=24
SMALL_VOLUMES=2
SMALL_VOLUME_SIZE=16Mi
KIND_CLUSTER=securebench

has_docker() { command -v docker >/dev/null && timeout 10 docker info >/dev/null 2>&1; }

# kind | node; SECUREBENCH_CLUSTER overrides what the machine offers.
cluster_flavour() {
  if [ -n "${SECUREBENCH_CLUSTER:-}" ]; then echo "$SECUREBENCH_CLUSTER"
  elif has_docker; then echo kind
  else echo node; fi
}

# use_flavour kind|node: what the tools below talk to.
use_flavour() {
  export SECUREBENCH_CLUSTER=$1
  if [ "$1" = kind ]; then export KUBECONFIG=$CLUSTER_HOME/kind.kubeconfig
  else export KUBECONFIG=$STATE/admin.kubeconfig; fi
}

export PATH=$BIN:$PATH
use_flavour "$(cluster_flavour)"
