#!/usr/bin/env bash
# Gets the toolkit of CUDA 12 from packages, into a folder of its own. Nothing is installed, and another toolkit stays as it is.
#
#   scripts/cuda12.sh [FOLDER]     build/cuda-12, 2 GB; the download has 1.2 GB
#
# nvcc 12.4 is Debian 13's, which runs on Debian 12, too; headers and libraries are NVIDIA's on PyPI, since Debian's package of
# headers brings a gigabyte of static libraries. cuDNN and NCCL are the releases with which CUDA 13 is tested. Programs find these
# libraries by LD_LIBRARY_PATH=FOLDER/lib: CMake writes no folder of the source tree into them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

[[ ${1-} != -* ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' scripts/cuda12.sh; exit 2; }
root=$(realpath -m "${1:-build/cuda-12}")
[[ ! -e $root ]] || die "$root is there already. Remove it first?"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[[ -e $keys ]] || die "$keys is missing. Install the package debian-archive-keyring?"
wheels=(nvidia-cuda-nvcc-cu12==12.4.131 nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-cccl-cu12==12.4.127.post1
  nvidia-cublas-cu12==12.4.5.8 nvidia-cuda-nvrtc-cu12==12.4.127 nvidia-cudnn-cu12==9.19.0.56 nvidia-nccl-cu12==2.28.9)

mkdir -p "$(dirname "$root")"
work=$(mktemp -d "$root.XXXXXX")
trap 'rm -rf "$work"' EXIT

step "nvcc"
mkdir -p "$work"/apt/{lists,cache/archives}/partial "$work"/{debian,wheels,toolkit}
echo "deb [signed-by=$keys arch=amd64] http://deb.debian.org/debian trixie non-free" >"$work/apt/sources"
apt=(apt-get -q -o "Dir::Etc::SourceList=$work/apt/sources" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$work/apt/lists"
  -o "Dir::Cache=$work/apt/cache" -o Dir::State::Status=/dev/null -o APT::Architecture=amd64 -o APT::Sandbox::User=root -o Acquire::Retries=3)
"${apt[@]}" update
(cd "$work/debian" && "${apt[@]}" download nvidia-cuda-toolkit)
dpkg-deb -x "$work"/debian/*.deb "$work/debian"

step "headers and libraries"
python3 -m pip download -q --no-deps --only-binary=:all: --platform manylinux_2_27_x86_64 --platform manylinux_2_18_x86_64 \
  --platform manylinux2014_x86_64 -d "$work/wheels" "${wheels[@]}"

step "toolkit"
cd "$work/toolkit"
mkdir -p bin nvvm/bin include lib
for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$work/wheels"; done
for part in "$work"/wheels/nvidia/*/; do
  for folder in include lib nvvm; do [[ ! -d $part/$folder ]] || cp -a "$part/$folder" .; done
done
find . -name '__init__.py' -delete
cp -a "$work"/debian/usr/bin/{cu++filt,cudafe++,cuobjdump,fatbinary,nvdisasm,nvlink,ptxas} bin/
cp -a "$work"/debian/usr/lib/nvidia-cuda-toolkit/bin/{nvcc,crt} bin/
cp -a "$work/debian/usr/lib/nvidia-cuda-toolkit/bin/cicc" nvvm/bin/
for library in lib/*.so.*; do [[ -e ${library%%.so.*}.so ]] || ln -s "$(basename "$library")" "${library%%.so.*}.so"; done
ln -s lib lib64
cat >bin/nvcc.profile <<'END_OF_PROFILE' # where nvcc finds the rest
TOP               = $(_HERE_)/..
CICC_PATH         = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH             += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES         += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES        =+ $(_SPACE_) "-L$(TOP)/lib"
END_OF_PROFILE
bin/nvcc --version >/dev/null || die "nvcc does not run here"
mv "$work/toolkit" "$root"
say "$root, $(du -sh "$root" | cut -f1). Next: cmake --preset release -B build/release-cuda12 -DCUDAToolkit_ROOT=$root"
