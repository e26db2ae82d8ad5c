#!/bin/bash
# Stops the local node and removes its containers, mounts, network namespace, cgroups and state; also after its
# processes have been killed. Touches nothing that is not the node's own.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/env.sh
. "$HERE/env.sh"
# shellcheck source=tests/cluster/lib.sh
. "$HERE/lib.sh"
# shellcheck source=tests/cluster/network.sh
. "$HERE/network.sh"

container_pids() {
  local root
  while read -r root; do
    find "$root" -name cgroup.procs -exec cat {} + 2>/dev/null || true
  done < <(cgroup_roots) | sort -u
}

no_containers() { [ -z "$(container_pids)" ]; }

kill_containers() {
  local pids
  kill_hard "${STRAYS[@]}"
  mapfile -t pids < <(container_pids)
  [ "${#pids[@]}" -eq 0 ] || kill -9 "${pids[@]}" 2>/dev/null || true
  wait_for 10 no_containers || say "warning: some container processes do not end"
}

own_mounts() { awk -v state="$STATE/" 'index($2, state) == 1 {print $2}' /proc/mounts | sort -r; }

remove_mounts() {
  local point
  while read -r point; do umount -l "$point" || true; done < <(own_mounts)
  [ -z "$(own_mounts)" ] || die "still mounted below $STATE, which therefore stays: $(own_mounts)"
}

remove_cgroups() {
  local root
  while read -r root; do
    if [ -d "$root" ]; then find "$root" -depth -type d -exec rmdir {} + 2>/dev/null || true; fi
  done < <(cgroup_roots)
}

# The kubelet keeps these links in a fixed folder.
remove_links() {
  if [ -d /var/log/containers ]; then find /var/log/containers -lname "$STATE/*" -delete; fi
}

main() {
  local daemon
  [ "${1:-}" = --locked ] || lock /run/lock
  stop kubelet
  kill_containers
  for daemon in "${DAEMONS[@]}"; do stop "$daemon"; done
  kill_containers
  remove_mounts
  remove_network
  remove_cgroups
  remove_links
  if has_own_cilium_run; then rm /run/cilium; fi
  rm -rf --one-file-system "$STATE"
}

main "$@"
