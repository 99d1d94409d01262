#!/usr/bin/env bash
# shellcheck disable=SC2317 # check calls most functions
# What scripts/gpu_check.sh does where there is no GPU, where it looks for libraries, and what it asks of a machine:
# gpu_check_test.sh BUILD. Speaks TAP.
set -uo pipefail
build=$(realpath "$1")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/gpu-check-test.XXXXXX")
trap 'rm -rf "$work"' EXIT

# ends CODE COMMAND...: with this exit code; its output is in $work/out
ends() {
  local want=$1 code
  shift
  timeout -k 5 60 "$@" >"$work/out" 2>&1
  code=$?
  ((code == want)) || { printf 'exit %s, want %s\n' "$code" "$want"; cat "$work/out"; return 1; }
}
said() { holds "$(<"$work/out")" "$1"; }

# A bundle in all that the script looks at; programs as files that a test may replace.
bundle() { # bundle NAME
  local to=$work/$1
  mkdir -p "$to"/{bin,tests,lib/holdfast,share/holdfast}
  ln -s "$build/launcher/holdfast" "$build/src/train/holdfast-train" "$to/bin/"
  ln -s "$build/src/train/libholdfast-cuda.so" "$to/lib/holdfast/"
  ln -s "$build"/tests/gpu/gpu_{kernels,products,attention,bench} "$build/tests/train/make_tokens" "$to/tests/"
  ln -s "$source/configs" "$to/share/holdfast/configs"
  cp "$source/scripts/gpu_check.sh" "$to/tests/"
}
replace() { # replace PROGRAM <<<TEXT: a shell script in its place
  rm -f "$1"
  { echo '#!/usr/bin/env bash'; cat; } >"$1"
  chmod +x "$1"
}

bundle real
export OUT=$work/results
mkdir "$OUT"
if "$build/tests/gpu/gpu_kernels" --gtest_filter=-'*' >/dev/null 2>&1; then
  echo "# there is a GPU here: that it would be missed is not shown"
else
  check "without a GPU it is not 0" ends 77 "$work/real/tests/gpu_check.sh"
  check "and says so" said "Nothing was tested"
  check "and leaves no results" equal "$(ls "$OUT")" ""
fi
check "it lists its rows" ends 0 "$work/real/tests/gpu_check.sh" --list
check "with their stages" said "speed	Llama-2-7B s4096 bf16"
check "or some of them" ends 0 "$work/real/tests/gpu_check.sh" --list speed:7B repeat
check "by their names" equal "$(grep -c 7B "$work/out") $(grep -vc 7B "$work/out")" "4 10"
check "an unknown stage is refused" ends 2 "$work/real/tests/gpu_check.sh" sped
check "an option without its value, too" ends 2 "$work/real/tests/gpu_check.sh" --within
check "a name that no row has, too" ends 2 "$work/real/tests/gpu_check.sh" --plan "$work/none.toml" speed:900B

# ---- on a machine that says it has a GPU: the tests' programs are replaced
bundle fake
fake=$work/fake/tests
replace "$fake/gpu_kernels" <<<'echo "[  PASSED  ] 3 tests."; env >"'"$work"'/environment"'
replace "$fake/gpu_products" <<<'echo "[  FAILED  ] One.Case"; exit 1'
replace "$fake/gpu_attention" <<<'trap "" TERM; sleep 1000'
check "a row that fails fails the whole" ends 1 env LD_LIBRARY_PATH=/given "$fake/gpu_check.sh" kernels:kernels kernels:products
check "and the others are there" said "kernels against fp64 and CPU"
check "with what failed" said "[  FAILED  ] One.Case"
check "each is in the file" equal "$(grep -cE 'against fp64 and CPU +(ok|FAILED)' "$OUT/gpu_check.txt")" 2
check "and in the json" holds "$(<"$OUT/gpu_check.json")" '"products against fp64 and CPU":{"result":"FAILED"'
check "our programs find the bundle's libraries first" holds "$(grep ^LD_LIBRARY_PATH "$work/environment")" "=$work/fake/lib:/given"
check "chosen rows alone are run" ends 0 "$fake/gpu_check.sh" kernels:kernels
rm -f "$OUT"/*
"$fake/gpu_check.sh" kernels:kernels kernels:attention >"$work/out" 2>&1 &
pid=$!
check "a row that is done is in the file while the next one hangs" soon 30 grep -q 'kernels against.* ok' "$OUT/gpu_check.txt"
hangs() { pgrep -f "$fake/gpu_attention" >/dev/null; }
ended() { ! hangs; }
check "which hangs" soon 30 hangs
kill -TERM "$pid"
wait "$pid" 2>/dev/null
check "a check that is killed takes it along" soon 10 ended
rm -f "$OUT"/*
sed -i 's/limited 175 /limited 2 /' "$fake/gpu_check.sh"
check "a program that ignores SIGTERM is killed at its limit" ends 1 "$fake/gpu_check.sh" kernels:attention kernels:kernels
check "and said to be" said "killed at its time limit"
check "and the next row is run" said "[  PASSED  ] 3 tests."

# PyTorch's environment is the caller's.
mkdir "$work/path"
replace "$work/path/python3" <<<'env >"'"$work"'/python"; exit 1'
check "without PyTorch its row is skipped" ends 0 env -u LD_LIBRARY_PATH PATH="$work/path:$PATH" "$fake/gpu_check.sh" "speed:124M s1024 bf16, PyTorch"
check "which is asked in its own environment" equal "$(grep -cE '^(LD_LIBRARY_PATH|OPAL_PREFIX|PMIX_PREFIX)=' "$work/python")" 0

# ---- libraries, where images keep them
bundle image
image=$work/image/tests
for object in "$work/image/lib/holdfast/libholdfast-cuda.so" "$work/image/bin/holdfast-train" "$image"/gpu_{kernels,products,attention,bench}; do rm -f "$object"; done
replace "$image/gpu_kernels" <<<'exit 0'
replace "$work/image/bin/holdfast-train" <<<'exit 0'
printf 'int main() { return 0; }\n' >"$work/empty.c"
site=$work/venv/lib/python3.11/site-packages
for one in cu13:libhf-cublas.so.13 cudnn:libhf-cudnn.so.9 cufile:libhf-other.so.1; do
  mkdir -p "$site/nvidia/${one%%:*}/lib"
  gcc -shared -fPIC -nostdlib -Wl,-soname,"${one#*:}" -x c /dev/null -o "$site/nvidia/${one%%:*}/lib/${one#*:}"
done
# A program that needs libraries which no loader has.
gcc "$work/empty.c" -o "$image/gpu_products" -Wl,--no-as-needed "$site"/nvidia/{cu13/lib/libhf-cublas.so.13,cudnn/lib/libhf-cudnn.so.9}
mkdir -p "$work/toolkit/lib64"
replace "$work/path/python3" <<<'exit 1'
libs() { env -u LD_LIBRARY_PATH -u HOLDFAST_CUDA_LIBS PATH="$work/path:$PATH" CUDA_HOME="$work/toolkit" "$@" "$image/gpu_check.sh" --libs; }
in_venv=$(libs env VIRTUAL_ENV="$work/venv")
check "a package of cuDNN in a virtual environment is found" holds "$in_venv" "$site/nvidia/cudnn/lib"
check "with its siblings, for what is opened later" holds "$in_venv" "$site/nvidia/cufile/lib"
replace "$work/path/python3" <<<"echo $site"
check "or where python3 says" holds "$(libs)" "$site/nvidia/cudnn/lib"
check "or where it was told" holds "$(libs env HOLDFAST_CUDA_LIBS="/nowhere:$site/nvidia/cudnn/lib")" "$site/nvidia/cudnn/lib"
gcc -shared -fPIC -nostdlib -Wl,-soname,libhf-cudnn.so.9 -x c /dev/null -o "$work/toolkit/lib64/libhf-cudnn.so.9"
check "a toolkit comes first" holds "$(libs | grep -E "toolkit|cudnn" | head -n 1)" "$work/toolkit/lib64"
replace "$work/path/python3" <<<'exit 1'
rm "$work/toolkit/lib64/libhf-cudnn.so.9"
check "libraries that are nowhere are an error of their own" ends 3 env -u LD_LIBRARY_PATH PATH="$work/path:$PATH" CUDA_HOME="$work/toolkit" HOLDFAST_CUDA_LIBS="" "$image/gpu_check.sh"
check "which names them" said "libhf-cudnn.so.9"

# ---- the rows of speed fit the machine that they are for
cat >"$work/h200.toml" <<END
[cluster]
name = "one-h200"
gpu = "h200"
gpus_per_node = 1
gpu_memory_bytes = 150754820096
node_memory_bytes = 137438953472
control_interface = "lo"
[[unit]]
name = "one"
nodes = "here"
[[gpu]]
gpu = 0
nic = ""
netdev = ""
numa = 0
rail = 0
END
check "every row of speed fits one H200 with 128 GiB of host memory" ends 0 "$work/real/tests/gpu_check.sh" --plan "$work/h200.toml"
check "that of 8B with them" said "Llama-3-8B s8192 bf16, bf16 moments"
sed 's/^node_memory_bytes.*/node_memory_bytes = 60000000000/' "$work/h200.toml" >"$work/small.toml"
check "and not one with 60 GB" ends 1 "$work/real/tests/gpu_check.sh" --plan "$work/small.toml" speed:7B
check "which lacks host memory" said "of host memory but one of one-h200 has 55.88 GiB"

# ---- the bundle
mkdir "$work/release"
echo 'HOLDFAST_TESTS:BOOL=OFF' >"$work/release/CMakeCache.txt"
check "a build without tests is no bundle with tests" ends 1 "$source/scripts/bundle.sh" "$work/release" "$work/x.tar.gz" --with-tests
check "and what to type is said" said "cmake --preset gpu && cmake --build --preset gpu && scripts/bundle.sh build/gpu x.tar.gz --with-tests"

conclude
