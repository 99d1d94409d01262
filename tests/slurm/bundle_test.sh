#!/usr/bin/env bash
# shellcheck disable=SC2317 # check and soon call most functions
# Test the relocatable bundle: bundle_test.sh BUILD. A run whose nodes have nothing of Holdfast and cannot see Open MPI's
# packages, brought by slurm.bundle, ends in the same bits as a run of the installed programs.
# Speaks TAP; exits 77 when there is no SLURM here to test with.

set -uo pipefail

build=$(realpath "$1")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
need_cluster "$build/launcher/holdfast"

HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/bundle-test.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

archive=$dir/holdfast.tar.gz
check "a bundle can be made" "$source/scripts/bundle.sh" "$build" "$archive"
check "it is smaller than 40 MB" test "$(stat -c %s "$archive")" -lt 40000000
mkdir "$dir/unpacked"
tar -xzf "$archive" -C "$dir/unpacked"
bundle=$dir/unpacked/holdfast
foreign() { # objects that find a library of theirs outside of the bundle, the C library's, CUDA's and the network's apart
  find "$bundle/bin" "$bundle/lib" -type f -print0 | xargs -0 ldd 2>/dev/null | grep -- '=>' | grep -v "$dir/unpacked" |
    grep -vE '^\s*(libc|libm|libdl|librt|libpthread|libresolv|libutil|libanl|libcu.*|libnccl|libnv.*|libibverbs|librdmacm|libmlx5|libnl-.*)\.so'
}
check "its objects find their libraries in it" equal "$(foreign)" ""
if [[ -e $build/tests/gpu/gpu_kernels ]]; then
  check "one with the tests of GPUs can be made, too" "$source/scripts/bundle.sh" "$build" "$dir/gpu.tar.gz" --with-tests
  mkdir "$dir/gpu"
  tar -xzf "$dir/gpu.tar.gz" -C "$dir/gpu"
  gpu_check_starts() { # and finds no GPU, where there is none
    OUT=$dir/gpu timeout -k 5 120 "$dir/gpu/holdfast/tests/gpu_check.sh" kernels:kernels
    local code=$? expected=77
    [[ ! -e /dev/nvidiactl ]] || expected=0
    ((code == expected)) || { echo "exit $code"; false; }
  }
  check "and its check starts" gpu_check_starts
  rm -rf "$dir/gpu" "$dir/gpu.tar.gz"
fi

mini up --nodes 2 || { echo "Bail out! no minipod"; exit 1; }
install_programs "$build"/{launcher/holdfast,src/train/holdfast-train,src/tools/cli/holdfast-tool}
make_tokens
two_nodes=(--set cluster.nodes=2 --set cluster.spares=0)
submit plain "${two_nodes[@]}" >/dev/null
check "a run of the installed programs ends" soon 240 over plain

cp "$archive" "$home/holdfast.tar.gz"
chown 61000 "$home/holdfast.tar.gz"
job=$(submit_held bundled "${two_nodes[@]}" --set slurm.bundle=/shared/home/holdfast.tar.gz)
ran_from_the_bundle() { grep -qs "holdfast-$job/holdfast" "$home"/bundled/logs/*.log "$home"/bundled/job.sbatch || pgrep -f "/tmp/holdfast-$job/holdfast/bin/holdfast-train" >/dev/null; }
check "the ranks run from the bundle on the node's own disk" soon 120 ran_from_the_bundle
let_go bundled
check "a run that brought its bundle ends" soon 240 over bundled
check "in the same bits" equal "$(result bundled .state_digest)" "$(result plain .state_digest)"
gone() { test ! -e "/tmp/holdfast-$job" && mini exec test ! -e "/tmp/holdfast-$job"; }
check "and leaves nothing on the nodes" soon 60 gone
over bundled || show_record bundled

conclude
