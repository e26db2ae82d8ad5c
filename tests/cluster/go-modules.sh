# shellcheck shell=bash
# Programs of tests, built from Go modules in the versions of a go.mod. Sourced after env.sh and lib.sh, never run.
# The script that sources it sets HERE, its own folder, and BUILT, the folder in the cache.
export GOTOOLCHAIN=local CGO_ENABLED=0

# go_build PACKAGE...: of the module in the current folder.
go_build() { go build -trimpath -ldflags "-s -w" -o "$BUILT/bin/" "$@"; }

# module_folder MODULE: its source in Go's module cache.
module_folder() { go list -m -f '{{.Dir}}' "$1"; }

# build_part NAME: runs build_NAME in the folder of that name, unless it was built from the same files.
build_part() {
  local part=$1 stamp
  command -v go >/dev/null || die "Go 1.26 or newer is needed in PATH"
  mkdir -p "$BUILT/bin"
  cd "$HERE/$part" || exit
  stamp=$BUILT/.built-$part-$(cat -- * | sha256sum | cut -c1-12)
  if [ -f "$stamp" ]; then return; fi
  say "building $part (some minutes the first time)"
  "build_$part"
  rm -f "$BUILT/.built-$part"-*
  touch "$stamp"
}
