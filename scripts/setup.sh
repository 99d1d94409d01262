#!/usr/bin/env bash
# Install what Holdfast is built with and runs on, from Debian's own packages (12 and 13).
#
#   scripts/setup.sh [PACKAGE...]   install the list below, and PACKAGE... too
#   scripts/setup.sh --list         print the list
#   scripts/setup.sh --covers FILE  check that the list has every -dev package that FILE (cmake/Dependencies.cmake) names
#
# Quick and without network when everything is there. It starts no service: minipod runs its own slurmctld, slurmd and
# munged, and the machine's ones, if any, are left as they are.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/common.sh
source "$here/common.sh"

packages=(
  # tools to build and check
  ca-certificates ccache clang-format cmake file g++ git jq ninja-build pkg-config shellcheck
  # libraries (cmake/Dependencies.cmake); sentencepiece of Debian 13 needs protobuf, too
  libasio-dev libcli11-dev libfmt-dev libhdf5-dev libisal-dev libopenblas-openmp-dev libopenmpi-dev libpmix-dev
  libprotobuf-dev libsentencepiece-dev libsimdjson-dev libsodium-dev libspdlog-dev libtomlplusplus-dev libucx-dev libutf8proc-dev libxxhash-dev libzstd-dev
  nlohmann-json3-dev zlib1g-dev
  # tests
  hdf5-tools libgmock-dev libgtest-dev python3-h5py
  # a cluster on one machine (scripts/minipod)
  bindfs iproute2 libslurm-dev munge openmpi-bin procps psmisc slurm-client slurmctld slurmd util-linux
)
services=(munge slurmctld slurmd)

missing_of() {
  local package
  for package; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || printf '%s\n' "$package"
  done
}

covers() {
  local package status=0
  while read -r package; do
    [[ " ${packages[*]} " == *" $package "* ]] ||
      { printf 'setup.sh does not install %s (%s names it). Add it to the list?\n' "$package" "$1"; status=1; }
  done < <(grep -oE '\b(lib[a-z0-9+.-]+|nlohmann-json[0-9]+)-dev\b' "$1" | sort -u)
  return "$status"
}

# /usr/sbin/policy-rc.d is Debian's way to say "install, but start nothing".
forbid_starts() {
  saved=$(mktemp -d)
  [[ ! -e /usr/sbin/policy-rc.d ]] || cp -p /usr/sbin/policy-rc.d "$saved/policy-rc.d"
  trap 'allow_starts' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  printf '#!/bin/sh\nexit 101\n' >"$saved/none"
  as_root install -m 0755 "$saved/none" /usr/sbin/policy-rc.d
}

allow_starts() {
  if [[ -e $saved/policy-rc.d ]]; then
    as_root cp -p "$saved/policy-rc.d" /usr/sbin/policy-rc.d
  else
    as_root rm -f /usr/sbin/policy-rc.d
  fi
  rm -rf "$saved"
  trap - EXIT INT TERM HUP
}

case ${1-} in
  --list) printf '%s\n' "${packages[@]}"; exit ;;
  --covers) covers "$2"; exit ;;
  -*) die "there is no option '$1' (--list, --covers FILE)" ;;
esac

mapfile -t missing < <(missing_of "${packages[@]}" "$@")
if ((${#missing[@]} == 0)); then
  say "all packages are here"
  exit
fi
command -v apt-get >/dev/null || die "this machine has no apt-get. Install the counterparts of: ${missing[*]}?"
say "installing ${#missing[@]} packages: ${missing[*]}"
mapfile -t new_services < <(missing_of "${services[@]}")

forbid_starts
apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
as_root "${apt[@]}" update || say "apt-get update failed; trying with the lists that are here"
as_root "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
allow_starts

# Packages also enable their services for the next boot. Those that we brought stay off.
if command -v systemctl >/dev/null; then
  for service in "${new_services[@]}"; do
    as_root systemctl disable --quiet "$service.service" 2>/dev/null || true
  done
fi
mapfile -t missing < <(missing_of "${packages[@]}" "$@")
((${#missing[@]} == 0)) || die "these packages are still missing: ${missing[*]}"
