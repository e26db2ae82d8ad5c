#!/bin/bash
# Builds the node's programs from their Go modules into the user's cache. A part whose stamp
# (.built-<part>-<version>) is there is skipped. usage: build.sh [part...]
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/env.sh
. "$HERE/env.sh"
# shellcheck source=tests/cluster/lib.sh
. "$HERE/lib.sh"

NODE_PARTS=(kubernetes runtime runc cilium gvisor helm kwok pause)
export GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0

version_of() {
  case $1 in
    kubernetes | kubectl) echo "$KUBERNETES_VERSION" ;;
    runtime) echo "$CONTAINERD_VERSION-$CNI_PLUGINS_VERSION-$ETCD_VERSION" ;;
    runc) echo "$RUNC_VERSION" ;;
    cilium) echo "$CILIUM_VERSION" ;;
    gvisor) echo "$GVISOR_VERSION" ;;
    helm) echo "$HELM_VERSION" ;;
    kwok) echo "$KWOK_VERSION" ;;
    kind) echo "$KIND_VERSION" ;;
    pause) echo 1 ;;
    *) die "unknown part $1" ;;
  esac
}

# Starts an empty module in the current folder; builds do not touch the project's own.
new_module() { rm -f go.mod go.sum; printf 'module sbnode/%s\n\ngo 1.26.0\n' "$1" > go.mod; }

# The folder of a module's source in Go's module cache.
module_folder() { go mod download -json "$1@$2" | sed -n 's/.*"Dir": "\(.*\)",/\1/p'; }

# A writable copy of a module's source in ./src, for the few edits below.
copy_module() {
  local folder
  folder=$(module_folder "$1" "$2")
  rm -rf src; cp -r "$folder" src; chmod -R u+w src
}

# build_program MODULE VERSION PACKAGE NAME
build_program() {
  go get "$1/$3@v$2"
  go build -ldflags "-s -w" -o "$BIN/$4" "$1/$3"
}

# The API server, controller manager, scheduler, kubelet, kube-proxy and kubectl in one binary: they share most code.
build_kubernetes() {
  local folder staging=v0.${KUBERNETES_VERSION#1.} x=k8s.io/component-base/version component
  folder=$(module_folder k8s.io/kubernetes "v$KUBERNETES_VERSION")
  {
    printf 'module sbnode/kubernetes\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' "$KUBERNETES_VERSION"
    grep -oE '^\s+k8s.io/\S+ => ./staging' "$folder/go.mod" | awk -v v="$staging" '{print "\t"$1" => "$1" "v}'
    printf ')\n'
  } > go.mod
  cp "$HERE/kubenode.go.txt" main.go
  go mod tidy
  go build -tags providerless,dockerless -o "$BIN/kubenode" -ldflags "-s -w -X $x.gitVersion=v$KUBERNETES_VERSION \
    -X $x.gitMajor=1 -X $x.gitMinor=$(cut -d. -f2 <<< "$KUBERNETES_VERSION")" .
  for component in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
    ln -sf kubenode "$BIN/$component"
  done
}

# kubectl alone, for the kind flavour.
build_kubectl() {
  new_module kubectl
  rm -f "$BIN/kubectl"  # the node flavour has a link to its one binary there
  printf 'package main\n\nimport (\n\t"os"\n\n\t"k8s.io/component-base/cli"\n\tkubectl "k8s.io/kubectl/pkg/cmd"\n)\n\nfunc main() { os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand())) }\n' > main.go
  go get "k8s.io/kubectl@v0.${KUBERNETES_VERSION#1.}"
  go mod tidy
  go build -ldflags "-s -w" -o "$BIN/kubectl" .
}

build_runtime() {
  local containerd=github.com/containerd/containerd/v2/cmd plugins=github.com/containernetworking/plugins/plugins
  local etcd=go.etcd.io/etcd/server/v3
  new_module runtime
  go get "$containerd/containerd@v$CONTAINERD_VERSION" "$containerd/containerd-shim-runc-v2@v$CONTAINERD_VERSION" \
    "$containerd/ctr@v$CONTAINERD_VERSION" "$plugins/main/loopback@v$CNI_PLUGINS_VERSION" "$etcd@v$ETCD_VERSION"
  go build -tags "no_btrfs no_zfs no_devmapper no_aufs no_tracing" -ldflags "-s -w" -o "$BIN/" \
    "$containerd/containerd" "$containerd/containerd-shim-runc-v2" "$containerd/ctr"
  go build -ldflags "-s -w" -o "$CNI/" "$plugins/main/loopback"
  go build -ldflags "-s -w" -o "$BIN/etcd" "$etcd"
}

# Debian's runc is too old for Pods with user namespaces.
build_runc() {
  new_module runc
  go get "github.com/opencontainers/runc@v$RUNC_VERSION"
  CGO_ENABLED=1 go build -tags seccomp -ldflags "-s -w" -o "$BIN/runc" github.com/opencontainers/runc
}

# Cilium looks for kernel features in /proc/modules, which kernels without modules do not have.
build_cilium() {
  local cilium=github.com/cilium/cilium
  copy_module "$cilium" "v$CILIUM_VERSION"
  sed -i 's#"/proc/modules"#"/dev/null"#' src/pkg/datapath/linux/modules/modules_linux.go
  {
    printf 'module sbnode/cilium\n\ngo 1.23\n\nrequire %s v%s\n\n' "$cilium" "$CILIUM_VERSION"
    sed -n '/^replace/,$p' src/go.mod
  } > go.mod
  cp src/go.sum go.sum
  go mod edit -replace "$cilium=./src"
  printf '//go:build tools\n\npackage cilium\n\nimport (\n\t_ "%s/daemon/cmd"\n\t_ "%s/operator/cmd"\n\t_ "%s/plugins/cilium-cni/cmd"\n)\n' \
    "$cilium" "$cilium" "$cilium" > tools.go
  go mod tidy
  go build -tags osusergo -o "$BIN/cilium-agent" \
    -ldflags "-s -w -X $cilium/pkg/version.ciliumVersion=$CILIUM_VERSION" "$cilium/daemon"
  go build -tags ipam_provider_operator,osusergo -ldflags "-s -w" -o "$BIN/cilium-operator-generic" "$cilium/operator"
  go build -ldflags "-s -w" -o "$CNI/cilium-cni" "$cilium/plugins/cilium-cni"
  install_bpf
}

# Cilium compiles its eBPF programs on the node. Newer versions of clang warn about them, and warnings are errors.
install_bpf() {
  local folder=$CLUSTER_HOME/cilium
  rm -rf "$folder"; mkdir -p "$folder/bin"
  cp -r src/bpf "$folder/bpf"
  # shellcheck disable=SC2016  # expanded by the wrapper
  printf '#!/bin/sh\nexec /usr/bin/clang-19 "$@" -Wno-error\n' > "$folder/bin/clang"
  chmod +x "$folder/bin/clang"
  ln -sf /usr/bin/llc-19 "$folder/bin/llc"
}

# The shim may not lower its own out-of-memory score without CAP_SYS_RESOURCE.
build_gvisor() {
  copy_module gvisor.dev/gvisor "$GVISOR_VERSION"
  sed -i 's#sys.SetOOMScore(cmd.Process.Pid, oomScoreMax)#sys.AdjustOOMScore(cmd.Process.Pid, 1)#
    s#^\toomScoreMax *= -99.*#\toomScoreMax = -998#' src/pkg/shim/v1/manager.go
  new_module gvisor
  go mod edit -require "gvisor.dev/gvisor@$GVISOR_VERSION" -replace gvisor.dev/gvisor=./src
  go get gvisor.dev/gvisor/runsc gvisor.dev/gvisor/shim
  go build -ldflags "-s -w" -o "$BIN/runsc" gvisor.dev/gvisor/runsc
  go build -ldflags "-s -w" -o "$BIN/containerd-shim-runsc-v1" gvisor.dev/gvisor/shim
}

build_helm() { new_module helm; build_program helm.sh/helm/v4 "$HELM_VERSION" cmd/helm helm; }
build_kwok() { new_module kwok; build_program sigs.k8s.io/kwok "$KWOK_VERSION" cmd/kwok kwok; }
build_kind() {
  new_module kind
  go get "sigs.k8s.io/kind@v$KIND_VERSION"
  go build -ldflags "-s -w" -o "$BIN/kind" sigs.k8s.io/kind
}

# The container that holds a Pod's namespaces.
build_pause() {
  cp "$HERE/pause.c.txt" pause.c
  gcc -static -Os -s -o pause pause.c
  printf 'FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n' > Dockerfile
  local storage=(--storage-driver vfs --root "$SRC/pause/storage" --runroot "$SRC/pause/run")
  rm -f "$CLUSTER_HOME/pause.tar"
  buildah "${storage[@]}" bud --isolation chroot -q -t localhost/pause:1 . >/dev/null
  buildah "${storage[@]}" push -q localhost/pause:1 "docker-archive:$CLUSTER_HOME/pause.tar:localhost/pause:1"
  rm -rf storage run
}

# build PART: with its output in a log.
build() {
  local part=$1 stamp begin=$SECONDS log
  stamp=$CLUSTER_HOME/.built-$part-$(version_of "$part")
  if [ -f "$stamp" ]; then return; fi
  log=$CLUSTER_HOME/logs/$part.log
  say "building $part $(version_of "$part")"
  mkdir -p "$SRC/$part" "$CLUSTER_HOME/logs"
  # A process of its own: in a condition bash would ignore `set -e` inside a function.
  if ! "$HERE/build.sh" --here "$part" > "$log" 2>&1; then
    tail -n 20 "$log" >&2
    die "building $part failed; the whole output is in $log"
  fi
  touch "$stamp"
  say "built $part in $((SECONDS - begin)) s"
}

main() {
  local part
  if [ "${1:-}" = --here ]; then
    cd "$SRC/$2"
    "build_$2"
    return
  fi
  mkdir -p "$BIN" "$CNI" "$SRC"
  command -v go >/dev/null || die "Go 1.26 or newer is needed in PATH"
  for part in "${@:-${NODE_PARTS[@]}}"; do build "$part"; done
}

main "$@"
