#!/usr/bin/env bash
# Makes the packages of a build, installs each into an empty system, and runs what was installed:
#   .deb      by apt, with the libraries that it asks for, in a new Debian of this machine's release
#   .rpm      by rpm, into a folder; its dependencies are named and not looked for
#   .tar.gz   unpacked
# As root; rpm, debootstrap and some 1 GB in /var/tmp are needed: scripts/proof/packages.sh BUILD
# Ends with one line RESULT {json}.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"
(($# == 1)) || die "which build? scripts/proof/packages.sh BUILD"
build=$(realpath "$1")
for tool in rpmbuild dpkg-shlibdeps debootstrap; do
  command -v $tool >/dev/null || die "$tool is missing. Run scripts/setup.sh rpm dpkg-dev debootstrap?"
done
work=$(mktemp -d /var/tmp/hf-packages.XXXXXX)
trap 'umount -q "$work/deb/proc" || true; rm -rf "$work"' EXIT

step "the packages of $build"
cmake "$build" >/dev/null # it looks for the tools
(cd "$work" && cpack --config "$build/CPackConfig.cmake" >cpack.log) || { cat "$work/cpack.log"; die "cpack has failed"; }
deb=$(ls "$work"/*.deb) rpm=$(ls "$work"/*.rpm) tar=$(ls "$work"/*.tar.gz)
ls -sh "$deb" "$rpm" "$tar"
version=$(sed -n 's/.*CPACK_PACKAGE_VERSION "\(.*\)".*/\1/p' "$build/CPackConfig.cmake" | head -n 1)

# works PREFIX COMMAND...: what lies there is whole, and runs with COMMAND before it.
works() {
  local prefix=$1 file
  shift
  for file in bin/holdfast bin/holdfast-train bin/holdfast-tool bin/holdfast-pmix share/man/man1/holdfast.1 include/holdfast.h \
    share/bash-completion/completions/holdfast share/zsh/site-functions/_holdfast share/fish/vendor_completions.d/holdfast.fish \
    "share/modulefiles/holdfast/$version" share/holdfast/configs/README.md; do
    [[ -e $prefix/$file ]] || die "$prefix has no $file"
  done
  for file in libholdfast.a libholdfast.so holdfast.pc; do
    [[ -n $(find "$prefix" -name $file) ]] || die "$prefix has no $file"
  done
  PYTHONPATH=$prefix/share/holdfast/python python3 -B -c 'import holdfast' || die "$prefix has no client for Python"
  [[ $("$@" --version) == *"$version"* ]] || die "$* does not run"
  "$@" config show quickstart | grep -q '^name = "quickstart"' || die "$* does not find its job files"
}

step ".deb"
# shellcheck disable=SC1091 # of the system
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
# shellcheck disable=SC2016 # for apt
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m1 -E '/debian/?$' || true)
debootstrap --variant=minbase "$release" "$work/deb" "${mirror:-http://deb.debian.org/debian}" >"$work/debootstrap.log" 2>&1 || die "debootstrap failed"
cp -a /etc/apt/apt.conf.d/. "$work/deb/etc/apt/apt.conf.d/" 2>/dev/null || true
cp "$deb" "$work/deb/holdfast.deb"
mount -t proc proc "$work/deb/proc"
DEBIAN_FRONTEND=noninteractive chroot "$work/deb" sh -c 'apt-get -qq update && apt-get -qq install --no-install-recommends -y /holdfast.deb' \
  >"$work/apt.log" 2>&1 || { tail -n 20 "$work/apt.log"; die "apt does not install it"; }
works "$work/deb/usr" chroot "$work/deb" holdfast
chroot "$work/deb" dpkg --verify holdfast
added=$(chroot "$work/deb" dpkg -l | grep -c '^ii')

step ".rpm"
rpm --root "$work/rpm" --initdb
rpm --root "$work/rpm" -i --nodeps --ignoreos --ignorearch "$rpm"
works "$work/rpm/usr" "$work/rpm/usr/bin/holdfast"
needed=$(rpm -qp --requires "$rpm" | grep -c '^lib')

step ".tar.gz"
mkdir "$work/tar"
tar -xzf "$tar" -C "$work/tar"
works "$work"/tar/* "$work"/tar/*/bin/holdfast

printf 'RESULT %s\n' "$(jq -nc --arg version "$version" --argjson packages "$added" --argjson libraries "$needed" \
  --argjson deb "$(stat -c %s "$deb")" --argjson rpm "$(stat -c %s "$rpm")" --argjson tar "$(stat -c %s "$tar")" \
  '{proof: "packages", version: $version, deb_bytes: $deb, rpm_bytes: $rpm, tar_bytes: $tar, debian_packages_with_it: $packages, rpm_libraries_named: $libraries}')"
