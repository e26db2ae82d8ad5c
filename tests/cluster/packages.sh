#!/bin/bash
# Installs the system packages that are missing (Debian and Ubuntu). usage: packages.sh GROUP...
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/env.sh
. "$HERE/env.sh"
# shellcheck source=tests/cluster/lib.sh
. "$HERE/lib.sh"

BASE=(ca-certificates curl git jq make openssl)
NODE=(nftables iproute2 clang-19 llvm-19 bpftool buildah mmdebstrap gcc libc6-dev pkg-config libseccomp-dev
  uidmap util-linux e2fsprogs procps)

BROWSER=(chromium fonts-dejavu-core)
MONITORING=(prometheus)
REGISTRY=(docker-registry)

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# A Python of one's own (pyenv, uv) brings venv along; Debian's has it in a package.
needs_venv() { ! python3 -c 'import ensurepip, venv' 2>/dev/null; }

needs() {
  local package
  for package in "$@"; do is_installed "$package" || echo "$package"; done
  if needs_venv; then printf 'python3\npython3-venv\n'; fi
}

main() {
  local group wanted=() missing
  for group in "${@:-base}"; do
    case $group in
      base) wanted+=("${BASE[@]}") ;;
      node) wanted+=("${BASE[@]}" "${NODE[@]}") ;;
      browser) wanted+=("${BROWSER[@]}") ;;
      monitoring) wanted+=("${MONITORING[@]}") ;;
      registry) wanted+=("${REGISTRY[@]}") ;;
      *) die "unknown group $group (base, node, browser, monitoring, registry)" ;;
    esac
  done
  command -v apt-get >/dev/null || { say "no apt-get here; expected to be installed: ${wanted[*]}"; return; }
  mapfile -t missing < <(needs "${wanted[@]}")
  [ "${#missing[@]}" -gt 0 ] || return 0
  say "installing ${missing[*]}"
  [ "$(id -u)" -eq 0 ] || die "not root; run: apt-get install ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

main "$@"
