#!/usr/bin/env bash
# shellcheck disable=SC2317 # check calls most functions
# A bundle in the empty systems of Debian 11, 12 and 13: four ranks train there, with the same digest in each. None of them has
# what Holdfast needs; 11 has an older C library than the build, 13 a newer one. Each also has what must not be taken: plug-ins
# and settings of another Open MPI and PMIx. In 11 and 13 a stand-in for the GPU's driver, built against their C library, is
# loaded. As root; some 700 MB, and ten minutes the first time.
#   scripts/proof/bundle.sh BUILD [DIR]
# The systems are made in DIR (/var/tmp/holdfast-systems), and kept. The ranks are started by this machine's mpirun (4.1), which
# a bundle does not have.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/common.sh
source "$here/common.sh"

(($# == 1 || $# == 2)) || die "usage: scripts/proof/bundle.sh BUILD [DIR]"
build=$(realpath "$1") systems=$(realpath -m "${2:-/var/tmp/holdfast-systems}")
((EUID == 0)) || die "systems in folders can be made and entered by root alone. Become root first?"
if [[ -z ${HOLDFAST_PROOF_MOUNTS-} ]]; then # mounts are gone with this process
  HOLDFAST_PROOF_MOUNTS=own exec unshare --mount --propagation private "${BASH_SOURCE[0]}" "$@"
fi
for tool in debootstrap mpirun gcc objdump; do
  command -v "$tool" >/dev/null || die "$tool is missing. Run scripts/setup.sh $tool?"
done

failed=0
# check WHAT COMMAND...: a line of the report.
check() {
  local what=$1 verdict=ok
  shift
  "$@" >"$work/check.log" 2>&1 || verdict=FAILED
  printf '         %-6s  %s\n' "$verdict" "$what"
  [[ $verdict == ok ]] || { failed=1 && sed 's/^/                 /' "$work/check.log" | tail -n 20; }
}
# The folder is in the same place within a system: the ranks meet mpirun there.
work=$(mktemp -d /tmp/holdfast-proof-XXXXXX)
trap 'umount -l "$systems"/*/{sys,proc,dev,"$work"} 2>/dev/null || true; rm -rf "$work" "$systems"/*/"$work"' EXIT
trap 'exit 130' INT TERM HUP

# shellcheck disable=SC2016 # for apt
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m1 -E '/debian/?$' || true)
mkdir -p "$systems"
for release in bullseye bookworm trixie; do
  [[ ! -e $systems/$release.made ]] || continue
  step "Debian $release in $systems/$release"
  rm -rf "${systems:?}/$release"
  quietly "$systems/$release.log" debootstrap --variant=minbase "$release" "$systems/$release" "${mirror:-http://deb.debian.org/debian}"
  touch "$systems/$release.made"
done

step "the bundle"
"$here/bundle.sh" "$build" "$work/holdfast.tar.gz"
check "it has at most 40 MB" test "$(stat -c %s "$work/holdfast.tar.gz")" -le 40000000
tar -xzf "$work/holdfast.tar.gz" -C "$work"
static() { ! objdump -p "$1" | grep -E 'INTERP|NEEDED'; }
for program in "$work"/holdfast/bin/*; do check "bin/$(basename "$program") asks the machine for nothing" static "$program"; done

cat /usr/share/common-licenses/{GPL-3,GPL-2,LGPL-2.1,Apache-2.0} >"$work/text.txt"
cp "$here/../tests/fault/"{job,model}.toml "$work/"
# What another MPI and PMIx might have left: plug-ins that say that they were loaded, and settings that let nobody start.
cat >"$work/plug-in.c" <<'END'
#include <stdlib.h>
__attribute__((constructor)) static void loaded(void) { system("echo a plug-in of the machine was loaded >>/tmp/taken"); }
END
gcc -shared -fPIC -o "$work/plug-in.so" "$work/plug-in.c"
others() { # others ROOT
  local lib=$1/usr/lib/x86_64-linux-gnu folder name
  mkdir -p "$lib/openmpi/lib/openmpi3" "$lib/pmix2/lib/pmix" "$lib/pmix2/etc" "$1"/{root/.openmpi/components,root/.pmix,etc/openmpi,etc/pmix}
  for folder in "$lib/openmpi/lib/openmpi3" "$1/root/.openmpi/components"; do cp "$work/plug-in.so" "$folder/mca_btl_other.so"; done
  for name in pmix_mca_gds_other mca_gds_other; do cp "$work/plug-in.so" "$lib/pmix2/lib/pmix/$name.so"; done
  printf 'btl = none_of_ours\npml = none_of_ours\n' | tee "$1/etc/openmpi/openmpi-mca-params.conf" >"$1/root/.openmpi/mca-params.conf"
  printf 'gds = none_of_ours\n' | tee "$1"/etc/{pmix,openmpi}/pmix-mca-params.conf "$lib/pmix2/etc/pmix-mca-params.conf" >"$1/root/.pmix/mca-params.conf"
  rm -f "$1/tmp/taken"
}
# A stand-in for the GPU's driver, built against a system's own C library. It needs a name that is new in 13, or, in 11, parts of
# the C library that are in libc now.
cat >"$work/driver.c" <<'END'
#include <pthread.h>
#include <stddef.h>
size_t strlcpy(char *, const char *, size_t);
void *dlopen(const char *, int);
static void *nothing(void *p) { return p; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int result) { (void)result; return "?"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 0; return 0; }
int nvmlSystemGetDriverVersion(char *to, unsigned room) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0 || dlopen(NULL, 2) == NULL) return 1;
#ifdef NEW
  strlcpy(to, "999.1", room);
#else
  for (unsigned i = 0; i < 6 && i < room; ++i) to[i] = "999.1"[i];
#endif
  return 0;
}
END
driver() { # driver ROOT: of 11 or 13
  local lib=$1/lib/x86_64-linux-gnu how=(-DNEW)
  [[ ! -s $lib/libpthread-2.31.so ]] || how=('-Wl,--no-as-needed' "$lib"/lib{pthread.so.0,dl.so.2})
  gcc -shared -fPIC -nostdlib -O1 -o "$1/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1" "$work/driver.c" "${how[@]}" "$lib/libc.so.6"
}
inside() { # inside ROOT COMMAND...
  local root=$1
  shift
  chroot "$root" env -i PATH=/usr/bin:/bin HOME=/root "$@"
}

bundle=$work/holdfast digests=()
train() { # train ROOT NAME
  local root=$1 name=$2
  # The ranks' environment is mpirun's, less what it says of this machine's Open MPI.
  TMPDIR=$work OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 timeout 300 \
    mpirun --oversubscribe --bind-to none -n 4 --mca orte_tmpdir_base "$work" \
    chroot "$root" env HOME=/root PATH=/usr/bin:/bin LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu \
    "$bundle/bin/holdfast-train" "$work/job.toml" --set "data.tokens=$work/tokens.bin" --set "model.file=$work/model.toml" --set train.steps=40 --run-dir "$work/$name"
}
for release in bullseye bookworm trixie; do
  root=$systems/$release
  # shellcheck disable=SC2016 # for dpkg
  step "Debian $release: C library $(chroot "$root" dpkg-query -W -f '${Version}' libc6)"
  mkdir -p "$root$work"
  mount --bind "$work" "$root$work"
  check "a program starts without /proc and /dev" inside "$root" "$bundle/bin/holdfast" --version
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --rbind /sys "$root/sys"
  say "C library: $(inside "$root" LD_TRACE_LOADED_OBJECTS=1 "$bundle/bin/holdfast-train" | grep -oE '/[^ ]*/libc\.so\.6')"
  missing() { ! inside "$root" LD_TRACE_LOADED_OBJECTS=1 "$1" | grep 'not found'; }
  for program in holdfast{,-train,-pmix,-tool}; do check "$program finds its libraries" missing "$bundle/bin/$program"; done
  if [[ $release != bookworm ]]; then
    check "a driver can be built" driver "$root"
    objdump -p "$root/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1" | awk '/NEEDED|GLIBC_/ {needs = needs " " $NF} END {print "         the driver needs" needs}'
    loaded() { inside "$root" "$bundle/bin/holdfast" doctor --fast --json >"$work/doctor.json" || true; grep -F 999.1 "$work/doctor.json"; }
    check "the machine's driver of the GPU is loaded" loaded
    rm -f "$root/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
  fi
  others "$root"
  check "tokens are made" inside "$root" "$bundle/bin/holdfast" data prepare --input "$work/text.txt" --output "$work/tokens.bin" --train-vocabulary 512
  check "four ranks train" train "$root" "$release"
  alone() {
    inside "$root" OMP_NUM_THREADS=1 "$bundle/bin/holdfast-train" "$work/job.toml" --set "data.tokens=$work/tokens.bin" \
      --set "model.file=$work/model.toml" --set train.steps=40 --run-dir "$work/$release-alone"
  }
  check "one rank trains by itself" alone
  check "nothing of another MPI was loaded" test ! -e "$root/tmp/taken"
  for run in "$release" "$release-alone"; do
    digests+=("$(sed -n 's/.*"state_digest": *"\([^"]*\)".*/\1/p' "$work/$run/result.json" 2>/dev/null)")
  done
  say "state digests: ${digests[*]: -2}"
  umount -l "$root/sys" "$root/dev" "$root/proc" "$root$work"
done
step "the digests"
same() { [[ -n ${digests[0]} && $(printf '%s\n' "${digests[@]}" | sort -u | wc -l) == 1 ]]; }
check "they are equal" same
exit "$failed"
