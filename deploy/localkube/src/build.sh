#!/bin/sh
# Builds localkube, containerd-shim-runc-v2 and pause from Go modules into a folder (default: out).
# -v names each package as it is compiled: the caller's progress.
set -eu
cd "$(dirname "$0")"
out=${1:-out}
go=${GO:-go}
module_version() { "$go" list -m -f '{{.Version}}' "$1"; }
kubernetes=$(module_version k8s.io/kubernetes)
containerd=$(module_version github.com/containerd/containerd/v2)
minor=${kubernetes#v1.}

export CGO_ENABLED=0
containerd_flag="-X github.com/containerd/containerd/v2/version.Version=${containerd#v}"
version=k8s.io/component-base/version
"$go" build -v -trimpath -tags "no_btrfs no_devmapper no_zfs no_aufs" -ldflags "-s -w $containerd_flag \
  -X $version.gitVersion=$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}" -o "$out/localkube" .
"$go" build -v -trimpath -ldflags "-s -w $containerd_flag" -o "$out/containerd-shim-runc-v2" ./shim
"$go" build -v -trimpath -ldflags "-s -w" -o "$out/pause" ./pause
