#!/usr/bin/env bash
# Pack what a build made into one archive that runs on any x86-64 Linux: programs, their libraries, Open MPI, the C library and
# the configs. CUDA's own libraries are left to the machine that has the GPU, unless they are asked for.
#
#   scripts/bundle.sh BUILD OUT.tar.gz|OUT.tar.xz [--with-cuda-of OTHER]... [--with-cuda-libs] [--with-tests]
#
# --with-cuda-of adds the CUDA backend of another build of the same source with another major release of CUDA: holdfast-train
# takes the newest that the driver serves and whose libraries are there.
# --with-tests adds what scripts/gpu_lease.sh runs on a GPU, from a build of the preset gpu (or any other that has CUDA and
# tests); scripts/gpu_prepare.sh makes both.
#
# Unpack it anywhere, on a file system that all nodes see, and run bin/holdfast; or name it in slurm.bundle: then the job
# brings it to its nodes.
#
# What is in bin/ starts the programs in libexec/ (src/bundle/start.cpp): with the C library of the machine, or with that in
# lib/glibc where it is newer.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/common.sh
source "$here/common.sh"

[[ $# -ge 2 && -f $1/CMakeCache.txt ]] || die "usage: scripts/bundle.sh BUILD OUT.tar.gz|OUT.tar.xz [--with-cuda-of OTHER]... [--with-cuda-libs] [--with-tests]"
given=$1 build=$(cd "$1" && pwd) out=$(realpath -m "$2")
shift 2
cuda_libs=no tests=no others=()
while (($# > 0)); do
  case $1 in
    --with-cuda-of) others+=("${2:?the folder of another build}") && shift ;;
    --with-cuda-libs) cuda_libs=yes ;;
    --with-tests) tests=yes ;;
    *) die "there is no option '$1' (--with-cuda-of OTHER, --with-cuda-libs, --with-tests)" ;;
  esac
  shift
done
[[ $cuda_libs == no || ${#others[@]} == 0 ]] ||
  die "libraries of several releases of CUDA cannot be in one bundle (libcudnn.so.9 and libnccl.so.2 have the same name in all). Make a bundle for each?"
for other in "${others[@]}"; do
  compgen -G "$other/src/train/libholdfast-cuda-*.so" >/dev/null ||
    die "$other has no CUDA backend. Build it: cmake --build $other --target holdfast-cuda?"
  cmp -s "$build/src/device/build_stamp.cpp" "$other/src/device/build_stamp.cpp" ||
    die "$other is a build of another source than $given: programs refuse its CUDA backend. Build both again?"
done
gpu_programs=(gpu_kernels gpu_products gpu_attention gpu_bench)
if [[ $tests == yes ]]; then
  for program in "${gpu_programs[@]/#/tests/gpu/}" tests/train/make_tokens 'src/train/libholdfast-cuda-*.so'; do
    compgen -G "$build/$program" >/dev/null || die "$given has no $program, which --with-tests needs (built without tests or without CUDA?)
Run: cmake --preset gpu && cmake --build --preset gpu && scripts/bundle.sh build/gpu $(basename "$out") --with-tests"
  done
  [[ ! -e $build/tests/gpu/gpu_nccl ]] || gpu_programs+=(gpu_nccl)
fi
command -v file >/dev/null || die "file is missing. Run scripts/setup.sh file?"
start=$build/src/bundle/bundle-start
[[ -e $start ]] || die "$given has no $start. Build it: cmake --build $given?"

work=$(mktemp -d /tmp/hf-bundle-XXXXXX)
trap 'rm -rf "$work"' EXIT
root=$work/holdfast
mkdir -p "$root"
cmake --install "$build" --prefix "$root" --strip >/dev/null
for other in "${others[@]}"; do
  mkdir -p "$root/lib/holdfast"
  modules=$(ls "$root/lib/holdfast")
  cmake --install "$other/src/cuda" --prefix "$root" --strip >/dev/null
  [[ $(ls "$root/lib/holdfast") != "$modules" ]] || die "$other has a CUDA backend for the same release of CUDA. Leave it out?"
done
mkdir "$root/libexec"
for program in "$root"/bin/*; do
  mv "$program" "$root/libexec/"
  install -s "$start" "$program"
done
if [[ $tests == yes ]]; then
  mkdir "$root/tests"
  cp "${gpu_programs[@]/#/$build/tests/gpu/}" "$build/tests/train/make_tokens" "$root/libexec/"
  cp -L /usr/bin/mpirun "$root/libexec/" # for several ranks on one machine without a cluster
  for program in "${gpu_programs[@]}" make_tokens mpirun; do install -s "$start" "$root/tests/$program"; done
  cp "$here"/gpu_lease.{sh,md} "$here/bench/gpu_torch_rows.py" "$root/tests/"
fi

# Open MPI where its OPAL_PREFIX expects it (src/base/bundle.cpp). Agents start ranks without mpirun.
debian=lib/x86_64-linux-gnu
plugins=$debian/openmpi/lib/openmpi3 pmix=$debian/pmix2/lib/pmix
mkdir -p "$root/$plugins" "$root/$pmix" "$root/share/openmpi"
cp -L "/usr/$plugins"/mca_*.so "$root/$plugins/"
cp -L "/usr/$pmix"/*.so "$root/$pmix/"
cp -L /usr/share/openmpi/*.txt "$root/share/openmpi/"
# Left out because they drag in whole other systems, and are used on no machine that this is for.
rm -f "$root/$plugins"/mca_{atomic,memheap,scoll,spml,sshmem}_*.so # of OpenSHMEM, which MPI does not use
rm -f "$root/$plugins"/mca_{btl_openib,btl_usnic,mtl_psm,mtl_psm2,common_ofi,mtl_ofi,btl_ofi,fs_lustre,common_verbs}*.so

# UCX opens its transports by name, in the folder "ucx" beside its own libraries. Its InfiniBand ones need the machine's own
# verbs: their drivers are of one make with them. Where there are none it does without.
mkdir -p "$root/lib/ucx"
cp -L /usr/$debian/ucx/libuct_*.so.0 "$root/lib/ucx/"

# The C library, all of it: drivers of the machine ask for parts that were separate once. It looks for plug-ins of the name
# service where the machine has them.
mkdir -p "$root/lib/glibc"
cp -L /$debian/{ld-linux-x86-64.so.2,lib{c,m,mvec,dl,rt,pthread,resolv,util,anl}.so.*,libnss_{compat,dns,files}.so.2} "$root/lib/glibc/"

# What the machine itself must have: the drivers of GPU and network.
system='^(ld-linux-x86-64|libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libanl|libcuda|libnvidia-.*|libibverbs|librdmacm|libmlx5|libnl-.*|libslurm.*)\.so'
cuda='^(libcudart|libcublas|libcublasLt|libcudnn.*|libnccl|libnvrtc.*|libnvJitLink)\.so'
mkdir -p "$root/lib"
objects() { find "$root" -type f \( -name '*.so*' -o -path "$root/libexec/*" \) -not -path "$root/lib/glibc/*" -print; }
# ldd follows everything, so one pass over what we made is enough.
declare -A needed=()
while read -r object; do
  while read -r name path; do
    [[ $name =~ $system ]] && continue
    [[ $name =~ $cuda && $cuda_libs == no ]] && continue
    needed[$name]=$path
  done < <(ldd "$object" 2>/dev/null | awk '$2 == "=>" && $3 ~ "^/" { print $1, $3 }')
done < <(objects)
if [[ $cuda_libs == yes ]]; then # cuDNN opens its parts by name, and we open NCCL
  nccl=$(sed -n 's/^NCCL_LIBRARY:[A-Z]*=//p' "$build/CMakeCache.txt")
  [[ ! -e $nccl ]] || needed[libnccl.so.2]=$(realpath "$nccl")
  for path in "$(dirname "${needed[libcudnn.so.9]:-/nowhere/x}")"/libcudnn_*.so.9; do
    [[ ! -e $path ]] || needed[$(basename "$path")]=$path
  done
fi
for name in "${!needed[@]}"; do
  [[ ${needed[$name]} == "$root"/* ]] || cp -L "${needed[$name]}" "$root/lib/$name"
done

while read -r object; do
  file -b "$object" | grep -q '^ELF' || continue
  chmod u+w "$object"
  strip --strip-unneeded "$object" 2>/dev/null || true
done < <(objects)
# The folders of this machine's libraries are somebody's own on another: the start program names those of the bundle.
for program in "$root"/libexec/holdfast*; do
  printf 'file(RPATH_REMOVE FILE "%s")\n' "$program"
done >"$work/no_rpath.cmake"
cmake -P "$work/no_rpath.cmake" >/dev/null
git -C "$here" rev-parse HEAD >"$root/share/holdfast/bundle" 2>/dev/null || echo unknown >"$root/share/holdfast/bundle"

mkdir -p "$(dirname "$out")"
pack=(gzip -9)
[[ $out != *.xz ]] || pack=(xz -T0)
tar -C "$work" -cf - holdfast | "${pack[@]}" >"$out.tmp"
mv "$out.tmp" "$out"
say "$out: $(du -h "$out" | cut -f1), unpacked $(du -sh "$root" | cut -f1)"
