# shellcheck shell=bash
# Processes, waiting and messages. Sourced after env.sh, never run.

# shellcheck disable=SC2034  # read by the scripts that source this file
DAEMONS=(kubelet kube-proxy cilium-agent cilium-operator-generic kube-scheduler
  kube-controller-manager kube-apiserver containerd etcd)
# What daemons leave behind when they are killed. Container processes are found by their cgroup.
# shellcheck disable=SC2034
STRAYS=(containerd-shim-runc-v2 containerd-shim-runsc-v1 runsc runc cilium-cni)

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# or_node COMMAND...: runs a step of the kind flavour; when it fails, says how to do without Docker.
or_node() {
  "$@" || die "$1 $2 failed (see above); SECUREBENCH_CLUSTER=node uses a node built from Go modules, without Docker"
}

# wait_for SECONDS COMMAND...: polls until the command succeeds.
wait_for() {
  local deadline=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.2
  done
}

# The folder whose programs run the node: the one that `up` recorded, which may belong to another cache.
programs() { realpath -m "$(cat "$STATE/home" 2>/dev/null || echo "$CLUSTER_HOME")"; }

# The component a process runs: the name of its executable, or for the bundled binary the name it was called by.
component_of() {
  local pid=$1 exe argv0
  exe=$(readlink "/proc/$pid/exe") || return 1
  exe=${exe% (deleted)}
  if [ "${exe##*/}" = kubenode ]; then
    { IFS= read -r -d '' argv0 < "/proc/$pid/cmdline"; } 2>/dev/null || return 1
    exe=$argv0
  fi
  echo "${exe##*/}"
}

# own_pids NAME...: processes that run one of these components from the node's folder. A process is recognised by its
# executable, never by a recorded number, so a number that another program has got meanwhile is never touched.
own_pids() {
  local proc pid name folder
  folder=$(programs)
  find /proc -maxdepth 2 -name exe \( -lname "$folder/bin/*" -o -lname "$folder/cni/*" \) -printf '%h\n' 2>/dev/null |
    while read -r proc; do
      pid=${proc##*/}
      name=$(component_of "$pid") || continue
      if [[ " $* " == *" $name "* ]]; then echo "$pid"; fi
    done
}

is_running() { [ -n "$(own_pids "$1")" ]; }

# stop NAME: SIGTERM, after five seconds SIGKILL.
stop() {
  local pids
  mapfile -t pids < <(own_pids "$1")
  [ "${#pids[@]}" -gt 0 ] || return 0
  kill "${pids[@]}" 2>/dev/null || true
  if ! wait_for 5 not_running "$1"; then
    kill_hard "$1"
  fi
}

not_running() { ! is_running "$1"; }

kill_hard() {
  local pids
  mapfile -t pids < <(own_pids "$@")
  [ "${#pids[@]}" -eq 0 ] || kill -9 "${pids[@]}" 2>/dev/null || true
}

in_node() { nsenter "--net=/run/netns/$NETNS" "$@"; }

# start NAME COMMAND...: runs a daemon in the node's network namespace. nsenter and not `ip netns exec`, which mounts
# /sys anew and hides the cgroups from the kubelet.
start() {
  local name=$1; shift
  setsid nsenter "--net=/run/netns/$NETNS" "$@" >> "$STATE/logs/$name.log" 2>&1 < /dev/null 9>&- &
}

has_own_cilium_run() { [ "$(readlink /run/cilium)" = "$STATE/cilium/host" ]; }

# render FILE: a template of config/ with the settings filled in.
render() {
  sed -e "s#@STATE@#$STATE#g; s#@CNI@#$CNI#g; s#@BIN@#$BIN#g; s#@NODE_IP@#$NODE_IP#g" \
    -e "s#@NODE_NAME@#$NODE_NAME#g; s#@CGROUP@#$CGROUP#g" "$HERE/config/$1"
}

# The cgroup folders of this node: one per hierarchy with cgroup v1, a single one with v2.
cgroup_roots() {
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then echo "/sys/fs/cgroup/$CGROUP"; return; fi
  local hierarchy
  for hierarchy in /sys/fs/cgroup/*/; do echo "$hierarchy$CGROUP"; done
}

# lock FOLDER: only one start or stop at a time.
lock() {
  mkdir -p "$1"
  exec 9> "$1/securebench-cluster.lock"
  flock 9
}
