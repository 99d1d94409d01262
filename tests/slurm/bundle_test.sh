#!/usr/bin/env bash
# shellcheck disable=SC2317 # check and soon call most functions
# Test the relocatable bundle: bundle_test.sh BUILD. A run whose nodes have nothing of Holdfast, brought by slurm.bundle, ends in
# the same bits as a run of the installed programs; so does one from shared storage that loses a node. The machine's C library
# says that it is an old one, so that they take that of the bundle.
# Speaks TAP; exits 77 when there is no SLURM here to test with.

set -uo pipefail

build=$(realpath "$1")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
need_cluster "$build/launcher/holdfast"
[[ -n ${BUNDLE_TEST_MOUNTS-} ]] || BUNDLE_TEST_MOUNTS=own exec unshare --mount --propagation private "$0" "$@"

HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/bundle-test.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

archive=$dir/holdfast.tar.gz
check "a bundle can be made" "$source/scripts/bundle.sh" "$build" "$archive"
check "it is smaller than 42 MB" test "$(stat -c %s "$archive")" -lt 42000000
mkdir "$dir/unpacked"
tar -xzf "$archive" -C "$dir/unpacked"
bundle=$dir/unpacked/holdfast
libraries() { LD_TRACE_LOADED_OBJECTS=1 "$bundle/bin/holdfast-train" 2>&1; }
foreign() { # libraries that are found outside of the bundle, or nowhere; the C library's, CUDA's and the network's apart
  {
    for program in "$bundle"/bin/*; do LD_TRACE_LOADED_OBJECTS=1 "$program"; done
    find "$bundle/lib" -type f -not -path '*/glibc/*' -print0 | LD_LIBRARY_PATH=$bundle/lib xargs -0 ldd
  } 2>/dev/null | grep -- '=>' | grep -v "$dir/unpacked" |
    grep -vE '^\s*(libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libanl|libcu.*|libnccl|libnv.*|libibverbs|librdmacm|libmlx5|libnl-.*)\.so'
}
check "its objects find their libraries in it" equal "$(foreign)" ""
run_paths() { for program in "$bundle"/libexec/*; do readelf -Wd "$program"; done | grep -E 'RUNPATH|RPATH'; }
check "its programs name no folder of the machine that built it" equal "$(run_paths)" ""
ln -s unpacked/holdfast/bin/holdfast "$dir/link"
mkdir "$dir/links"
ln -s ../link "$dir/links/link"
check "a program of it starts through links" holds "$("$dir/links/link" --version)" holdfast
check "and by a relative path" holds "$(cd "$bundle/bin" && ./holdfast --version)" holdfast
check "it takes the machine's C library where that is as new" holds "$(libraries)" "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6"
LC_ALL=C sed 's/release version 2\.[0-9][0-9]/release version 2.28/' /lib64/ld-linux-x86-64.so.2 >"$dir/loader"
chmod 0755 "$dir/loader"
mount --bind "$dir/loader" "$(realpath /lib64/ld-linux-x86-64.so.2)"
check "and its own where the machine's is older" holds "$(libraries)" "/unpacked/holdfast/bin/../lib/glibc/libc.so.6"
mv "$bundle/lib/glibc" "$bundle/lib/glibc.gone"
check "half of a bundle says what is missing" holds "$("$bundle/bin/holdfast" --version 2>&1)" "holdfast: a part is missing ($bundle"
mv "$bundle/lib/glibc.gone" "$bundle/lib/glibc"
if [[ -e $build/tests/gpu/gpu_kernels && ! -e /dev/nvidiactl ]]; then
  other=$dir/other # stands for a build with CUDA 1
  mkdir -p "$other"/src/{cuda,device,train}
  cp "$build/src/device/build_stamp.cpp" "$other/src/device/"
  echo "no module" >"$other/src/train/libholdfast-cuda-1.so"
  echo "file(INSTALL $other/src/train/libholdfast-cuda-1.so DESTINATION \${CMAKE_INSTALL_PREFIX}/lib/holdfast)" \
    >"$other/src/cuda/cmake_install.cmake"
  refusal() { "$source/scripts/bundle.sh" "$build" "$dir/gpu.tar.gz" --with-tests "$@" 2>&1; }
  check "a build without a CUDA backend has none to give" holds "$(refusal --with-cuda-of "$dir")" "has no CUDA backend"
  check "libraries of two releases are refused" holds "$(refusal --with-cuda-of "$other" --with-cuda-libs)" "a bundle for each?"
  check "one with the tests of GPUs and two CUDA backends can be made, too" \
    "$source/scripts/bundle.sh" "$build" "$dir/gpu.tar.gz" --with-tests --with-cuda-of "$other"
  check "which lie side by side" equal "$(tar -tzf "$dir/gpu.tar.gz" | grep -c '/lib/holdfast/libholdfast-cuda-[0-9]*.so$')" 2
  echo "// changed" >>"$other/src/device/build_stamp.cpp"
  check "a backend of another source is refused" holds "$(refusal --with-cuda-of "$other")" "is a build of another source"
  finds_no_gpu() {
    OUT=$dir/gpu timeout -k 5 120 "$source/scripts/gpu_lease.sh" "$dir/gpu.tar.gz" first 60
    (($? == 77))
  }
  check "and its programs start, and find no GPU" finds_no_gpu
  rm -rf "$dir/gpu" "$dir/gpu.tar.gz"
fi

storage=() # a server for /shared on each node: nobody takes it for a disk of the node
[[ ! -c /dev/fuse ]] || storage=(--storage fuse)
mini up --nodes 3 "${storage[@]}" || { echo "Bail out! no minipod"; exit 1; }
install_programs "$build"/{launcher/holdfast,src/train/holdfast-train,src/tools/cli/holdfast-tool}
make_tokens
two_nodes=(--set cluster.nodes=2 --set cluster.spares=0)
submit plain "${two_nodes[@]}" >/dev/null
check "a run of the installed programs ends" soon 240 over plain

cp "$archive" "$home/holdfast.tar.gz"
chown 61000 "$home/holdfast.tar.gz"
# Another user knows the number of the next job, and has been on the nodes before it.
# shellcheck disable=SC2016 # for the node's shell
plant='for n in $(seq "$1" $(($1 + 3))); do
  mkdir -p "/tmp/holdfast-$n/holdfast/bin"
  printf "#!/bin/sh\nid -un >>/tmp/ran-as-%s\n" "$n" >"/tmp/holdfast-$n/holdfast/bin/holdfast"
  chmod -R a+rwx "/tmp/holdfast-$n"
done'
last=$(mini exec squeue -h -t all -o %A | sort -n | tail -n 1)
for node in dgx001 dgx002 dgx003; do mini exec --intruder --node "$node" --chdir / bash -c "$plant" plant "$((last + 1))"; done
job=$(submit_held bundled "${two_nodes[@]}" --set slurm.bundle=/shared/home/holdfast.tar.gz)
check "the next job's number was guessed" mini exec --node dgx001 --chdir / test -d "/tmp/holdfast-$job"
ran_from_the_bundle() { pgrep -f "^/tmp/holdfast-$job-[0-9a-f]{32}/holdfast/bin/holdfast-train" >/dev/null; }
check "the ranks run from the bundle on the node's own disk" soon 120 ran_from_the_bundle
let_go bundled
check "a run that brought its bundle ends" soon 240 over bundled
check "in the same bits" equal "$(result bundled .state_digest)" "$(result plain .state_digest)"
on_nodes() { for node in dgx001 dgx002 dgx003; do mini exec --node "$node" --chdir / sh -c "ls -d $1 2>/dev/null"; done; }
gone() { [[ -z $(on_nodes "/tmp/holdfast-$job-*") ]]; }
check "and leaves nothing on the nodes" soon 60 gone
check "nothing ran that another user had put there" equal "$(on_nodes '/tmp/ran-as-*')" ""
over bundled || show_record bundled

# From shared storage: agents copy it into the memory of their nodes.
cp -r "$bundle" "$dir/shared/opt/bundle"
on_shared() { # its job names its own programs
  copy_job
  mini exec --chdir /shared/home /shared/opt/bundle/bin/holdfast submit job.toml --parsable --set data.tokens=/shared/home/tokens.bin \
    --set run.dir=/shared/home/copied --set run.name=copied "${test_sets[@]}" --set cluster.spares=1 --set drill.allowed=true && hold copied
}
# Settings that another MPI and PMIx would start with, and these would not.
mkdir "$home/.openmpi" "$home/.pmix"
echo 'pml = another' >"$home/.openmpi/mca-params.conf"
echo 'gds = another' >"$home/.pmix/mca-params.conf"
chown -R 61000 "$home/.openmpi" "$home/.pmix"
on_shared >/dev/null
check "a run of a bundle on shared storage trains" soon 120 training copied 1
[[ -z ${storage-} ]] || check "from copies in the memory of its nodes" soon 30 grep -qsE 'run from [0-9]+ copies in' "$home"/copied/logs/agent-*.log
named() { mini exec pgrep -x holdfast-pmix && mini exec pgrep -x holdfast-train; }
check "the kernel knows its programs by their names" named
mini kill-node "$(placement copied | tail -n 1)"
check "it goes on when a node is lost" soon 120 training copied 2
let_go copied
check "it ends" soon 240 over copied
check "in the same bits, too" equal "$(result copied .state_digest)" "$(result plain .state_digest)"
over copied || show_record copied

conclude
