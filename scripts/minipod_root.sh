#!/usr/bin/env bash
# Make a system with another release of SLURM, for `minipod up --root DIR`: Debian's own packages in a folder.
#   scripts/minipod_root.sh RELEASE DIR
# RELEASE: bookworm (SLURM 22.05), trixie (24.11) or sid (26.05 or newer). As root; takes minutes and some 1.2 GB.
# What is installed is written to DIR/slurm-release.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/common.sh
source "$here/common.sh"

(($# == 2)) || die "usage: scripts/minipod_root.sh RELEASE DIR"
release=$1 dir=$(realpath -m "$2")
case $release in
  bookworm | trixie | sid) ;;
  *) die "no release is called '$release' (bookworm, trixie, sid)" ;;
esac
((EUID == 0)) || die "a system in a folder can be made by root alone. Become root first?"
[[ ! -e $dir/slurm-release ]] || { say "already there: $(<"$dir/slurm-release")"; exit; }
command -v debootstrap >/dev/null || die "debootstrap is missing. Run scripts/setup.sh debootstrap?"
# The mirror of this machine.
# shellcheck disable=SC2016 # for apt
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m1 -E '/debian/?$' || true)
mirror=${mirror:-http://deb.debian.org/debian}
mkdir -p "$(dirname "$dir")"

packages=(bash bindfs iproute2 jq mariadb-server munge openmpi-bin procps psmisc python3 slurm-client slurmctld slurmd slurmdbd util-linux xxd)
step "Debian $release in $dir"
debootstrap --variant=minbase "$release" "$dir" "$mirror" >"$dir.log" 2>&1 || die "debootstrap failed (see $dir.log)"
printf '#!/bin/sh\nexit 101\n' >"$dir/usr/sbin/policy-rc.d" # install, but start nothing
chmod 0755 "$dir/usr/sbin/policy-rc.d"
cp -a /etc/apt/apt.conf.d/. "$dir/etc/apt/apt.conf.d/" 2>/dev/null || true
step "SLURM"
chroot "$dir" apt-get -qq update
DEBIAN_FRONTEND=noninteractive chroot "$dir" apt-get -qq install --no-install-recommends -y "${packages[@]}" >>"$dir.log" 2>&1 ||
  die "the packages cannot be installed (see $dir.log)"
chroot "$dir" apt-get clean
rm -f "$dir.log"
# shellcheck disable=SC2016 # for dpkg
chroot "$dir" dpkg-query -W -f '${Package} ${Version}\n' slurmctld openmpi-bin 2>/dev/null |
  paste -sd' ' >"$dir/slurm-release"
say "$(<"$dir/slurm-release")"
