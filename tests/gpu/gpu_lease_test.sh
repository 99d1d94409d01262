#!/usr/bin/env bash
# shellcheck disable=SC2317 # check calls most functions
# The whole way to a lent machine, where there is no GPU: gpu_lease_test.sh BUILD. The target builds all that the bundle takes,
# the bundle finds libraries where images keep them and says "no GPU", rows of speed fit the cards that they are for; and with
# programs that only say what real ones say: limits, retries, what is run again, the verdict. Speaks TAP.
set -uo pipefail
build=$(realpath "$1")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/gpu-lease-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
lease=$source/scripts/gpu_lease.sh
# ends CODE COMMAND...: with this exit code; its output is in $work/out
ends() {
  local want=$1 code
  shift
  timeout -k 5 120 "$@" >"$work/out" 2>&1
  code=$?
  ((code == want)) || { printf 'exit %s, want %s\n' "$code" "$want"; cat "$work/out"; return 1; }
}
said() { holds "$(<"$work/out")" "$1"; }
# row NAME RESULT: as a pattern
row() { grep -E "^ *[0-9]+ s  $1 +$2" "$work/out" || { grep -E "^ *[0-9]+ s  $1" "$work/out"; false; }; }
no_row() { ! grep -E "^ *[0-9]+ s  $1 " "$work/out"; }

# ---- the target and the bundle
not_built() { # what `cmake --install` installs of the build and the target does not make
  local commands file
  commands=$(ninja -C "$build" -t commands gpu_bundle) || return
  find "$build" -name cmake_install.cmake -exec grep -hoE "\"$build/[^\"]+\"" {} + | tr -d '"' | sed "s|^$build/||" |
    grep -vE '^install$|\$|^modulefile$|\.(pc|cmake)$' | sort -u | while read -r file; do
    grep -qE "(^|[ /])$file( |\$)" <<<"$commands" || echo "$file"
  done
}
if [[ -e $build/build.ninja ]] && command -v ninja >/dev/null; then
  check "the target gpu_bundle builds all that is installed" equal "$(not_built)" ""
fi
mkdir "$work/release"
echo 'HOLDFAST_TESTS:BOOL=OFF' >"$work/release/CMakeCache.txt"
check "a build without tests is no bundle with tests" \
  ends 1 "$source/scripts/bundle.sh" "$work/release" "$work/x.tar.gz" --with-tests
check "and what to type is said" said "cmake --preset gpu && cmake --build --preset gpu"
check "what travels is made" ends 0 env XZ_OPT=-0 "$source/scripts/gpu_prepare.sh" --no-build --no-trial "$build" "$work/travels"
check "with the command" said "gpu_lease.sh $work/travels/gpu.tar.xz first"
check "a wrong command line is one" ends 2 "$lease" "$work/travels/gpu.tar.xz" third 100
check "and the usage is said" said "gpu_lease.sh BUNDLE first|second BUDGET_S"

# ---- rows of speed fit the cards that they are for
check "the planner is asked for a card of 79 GiB" ends 0 "$lease" "$work/travels/gpu.tar.xz" plan 79.18
check "which 7B does not fit" row "7B bf16" "skipped +does not fit: a rank needs 129"
check "but with its moments on the host" said "7B bf16, moments on the host     together about 68.84 GiB of 79.18 GiB"
check "and for one of 139 GiB" ends 0 "$lease" "$work/travels/gpu.tar.xz" plan 139.8
check "which every row fits" equal "$(grep -c 'together about' "$work/out") $(grep -cE 'skipped|FAILED' "$work/out")" "12 0"

# ---- an empty machine: /opt and /usr/local are ours, and hold libraries only where a Python environment does
if [[ -e /dev/nvidiactl ]]; then
  echo "# there is a GPU here: that it would be missed is not shown"
elif ! unshare -m true 2>/dev/null; then
  echo "# no namespaces of mounts here: where libraries are found is not shown"
else
  site=$work/opt/torch/.venv/lib/python3.12/site-packages/nvidia
  mkdir -p "$site"/{cu13,cudnn}/lib "$work"/{empty,local/cuda/lib64,bin} "$work"/other/nvidia/{cublas,cudnn}/lib
  real() { ldd "$build/tests/gpu/gpu_kernels" | awk -v name="$1" 'index($1, name) == 1 {print $3}'; }
  for name in libcudart libcublasLt libcudnn; do
    path=$(real $name.so)
    [[ $name == libcudnn ]] && folder=$site/cudnn/lib || folder=$site/cu13/lib
    touch "$folder/$(basename "$path")" # mounted there: some have half a GB
    echo "$path $folder/$(basename "$path")"
    gcc -shared -fPIC -nostdlib -Wl,-soname,"$(basename "$path")" -x c /dev/null -o "$work/local/cuda/lib64/$(basename "$path")"
  done >"$work/mounts"
  # Packages of another CUDA, of which the plain python3 knows: their cuDNN has the name of ours.
  gcc -shared -fPIC -nostdlib -Wl,-soname,libcublasLt.so.12 -x c /dev/null -o "$work/other/nvidia/cublas/lib/libcublasLt.so.12"
  cp "$work"/local/cuda/lib64/libcudnn.so.* "$work/other/nvidia/cudnn/lib/"
  printf '#!/bin/sh\necho %s\n' "$work/other" >"$work/bin/python3"
  chmod +x "$work/bin/python3"
  # on_machine OPT LOCAL COMMAND...: with these folders for /opt and /usr/local
  # shellcheck disable=SC2016
  on_machine=(unshare -m --propagation private bash -c '
    while read -r from to; do mount --bind "$from" "$to"; done <"$1/mounts"
    mount --rbind "$2" /opt && mount --bind "$3" /usr/local && shift 3 && exec env -i OUT="$OUT" "$@"' - "$work")
  export OUT=$work/results
  call=("$work/travels/gpu_lease.sh" "$work/travels/gpu.tar.xz" first 60)
  check "libraries of a Python environment that the plain python3 is not of are found" \
    ends 77 "${on_machine[@]}" "$work/opt" "$work/empty" PATH=/usr/bin:/bin "${call[@]}"
  check "and without a GPU it says so" said "VERDICT no GPU, nothing was tested"
  check "in the file, too" holds "$(tail -n 1 "$OUT/result.txt")" "VERDICT no GPU"
  check "they come before a toolkit and before packages of another CUDA" \
    ends 77 "${on_machine[@]}" "$work/opt" "$work/local" PATH="$work/bin:/usr/bin:/bin" "${call[@]}"
  check "which come after them" holds "$(grep libraries: "$work/out")" \
    "/opt/torch/.venv/lib/python3.12/site-packages/nvidia/cudnn/lib /usr/local/cuda/lib64 $work/other/nvidia/cublas/lib"
  check "libraries that are nowhere are an error of their own" \
    ends 3 "${on_machine[@]}" "$work/empty" "$work/empty" PATH=/usr/bin:/bin "${call[@]}"
  check "which names them" said "libcudnn.so."
  check "and is no pass" said "VERDICT libraries are missing, nothing was tested"
fi
rm -rf "$work/travels/gpu.tar.xz"

# ---- a machine that says it has an H100: programs that say what real ones say
fake=$work/fake/holdfast
mkdir -p "$fake"/{bin,tests,libexec} "$fake/share/holdfast" "$work/path"
cp -r "$source/configs" "$fake/share/holdfast/"
program() { # program FILE <<<TEXT: a shell script
  { echo '#!/bin/bash'; cat; } >"$1"
  chmod +x "$1"
}
program "$fake/bin/holdfast" <<END # the real planner, on a host of 128 GiB
sed -i 's/^node_memory_bytes.*/node_memory_bytes = 137438953472/' "\${2%/*}/../jobs/cluster.toml"
exec "$build/launcher/holdfast" "\$@"
END
program "$work/path/nvidia-smi" <<<'[[ $* != *name,memory.free* ]] || echo "NVIDIA H100 80GB HBM3, 81079"'
program "$work/path/python3" <<<'exit 1'
program "$work/path/compute-sanitizer" <<<"echo \"\$2 \${9-}\" >>$work/sanitized; shift 6; exec \"\$@\""
rm -f "$fake"/tests/gpu_*
# The kernel of Zeta breaks the context: all tests behind it fail. It is the first to run, and the last by name.
program "$fake/tests/gpu_kernels" <<'END'
filter=${!#} broken=no
filter=${filter#--gtest_filter=}
[[ $filter != -* ]] || exit 0
for test in Zeta.Faults Alpha.One Beta.Two; do
  [[ $filter == '*' || ":$filter:" == *":$test:"* ]] || continue
  echo "[ RUN      ] $test"
  [[ $test != Zeta.Faults ]] || broken=yes
  if [[ $broken == yes ]]; then echo "[  FAILED  ] $test (0 ms)"; else echo "[       OK ] $test (0 ms)"; fi
done
[[ $broken == no ]]
END
cp "$fake/tests/gpu_kernels" "$fake/libexec/"
program "$fake/tests/gpu_products" <<<'echo "[       OK ] Product.IsRight (3 ms)"; env >'"$work/environment"
program "$fake/tests/gpu_attention" <<<'echo "[ RUN      ] Attention.Hangs"; trap "" TERM; sleep 1000'
program "$fake/tests/gpu_nccl" <<<'echo "[ RUN      ] Nccl.Sums"; echo "[  SKIPPED ] Nccl.Sums (0 ms)"'
program "$fake/tests/gpu_bench" <<<'echo "a card: copy 3 TB/s"; echo "RESULT {\"copy\":3}"'
program "$fake/tests/mpirun" <<'END'
ranks=$8
shift 8
for ((rank = 0; rank < ranks; ++rank)); do OMPI_COMM_WORLD_RANK=$rank "$@" & done
wait -n
code=$?
kill $(jobs -p) 2>/dev/null
exit $code
END
program "$fake/bin/holdfast-train" <<'END'
dir=$3 steps=20
mkdir -p "$dir/trace"
[[ ${OMPI_COMM_WORLD_RANK:-0} == 0 ]] || { sleep 3; exit 0; }
[[ -z ${GRAPHS_FAIL-} || $* == *trace.count=20* ]] || { echo "capture: error 900"; exit 1; }
rm -f "$dir/metrics.jsonl"
for ((step = 1; step <= steps; ++step)); do
  echo "{\"step\":$step,\"loss\":$((9 - step / 10)).5,\"tokens_per_s\":$((step < 3 ? 1 : 40000))}" >>"$dir/metrics.jsonl"
done
[[ $* != */small.toml* ]] || { [[ ! -e $dir/hold ]] || sleep 5; }
digest=5ee0
[[ $dir != *"${OTHER_BITS:-none}"* ]] || digest=bad0
[[ $* != *fp8* ]] || digest=8$digest
echo "{}" >"$dir/tuning.json"
echo "{\"state_digest\": \"$digest\"}" >"$dir/result.json"
touch "$dir/trace/rank-0.json"
[[ $* == */small.toml* ]] || sleep 1000
END
pack() { tar -C "$work/fake" -cf - holdfast | gzip -1 >"$work/fake.tar.gz"; }
pack
# What hangs is killed sooner.
# shellcheck disable=SC2016
sed -E 's/^(1 a .*\|) +75 \|/\1 6 |/; s/(time_for "\$name") [24]0 && gtest/\1 2 \&\& gtest/' "$lease" >"$work/short.sh"
chmod +x "$work/short.sh"
on_fake=(env -u LD_LIBRARY_PATH -u HOLDFAST_CUDA_LIBS PATH="$work/path:$PATH" OUT="$work/results")
rm -rf "$work/results"
check "some rows that fail fail the whole" \
  ends 1 "${on_fake[@]}" OTHER_BITS=world-hosts-4 "$work/short.sh" "$work/fake.tar.gz" first 200
check "a row says how many tests failed, in the order in which they ran" \
  row "test kernels" "FAILED +exit 1, 0 good, 3 failed: Zeta.Faults Alpha.One Beta.Two"
check "the first that failed is run alone" row "test kernels: the first alone" "FAILED +exit 1, 0 good, 1 failed"
check "and the others without it" row "test kernels: without the first" "ok +2 tests"
check "and memcheck gets it" holds "$(<"$work/sanitized")" "memcheck --gtest_filter=Zeta.Faults:Alpha.One:Beta.Two"
check "a program that ignores SIGTERM is killed at its limit" \
  row "test attention" "FAILED +killed at its limit of 6 s, 0 good, 1 failed: Attention.Hangs"
check "and is gone" equal "$(pgrep -f "^bash .*/gpu_attention|holdfast/tests/gpu_attention" | wc -l)" 0
check "a row in which nothing was tested is no pass" row "test nccl" "FAILED +nothing was tested, 1 skipped"
check "a good one is" row "test products" "ok +1 tests"
check "the trainer's runs are compared" row "bits bf16: again" "ok +the bits of smoke: 5ee0"
check "by kind" row "bits fp8: again" "ok +the bits of bits-fp8: 85ee0"
check "other bits with near losses are near" row "world hosts: 4 ranks" "near +other bits: bad0"
check "speed is of the third step on" row "wide8 bf16" "40000 +tokens/s, expected 43.9k"
check "what is only for a row that gave no number is left out" no_row "wide4 bf16"
check "the CPU is compared" row "parity: GPU beside CPU" "ok"
check "the verdict counts" holds "$(tail -n 1 "$work/out")" "VERDICT not good"
check "a row is in the file as on the screen" equal "$(grep -c 's  ' "$work/results/result.txt")" "$(grep -c 's  ' "$work/out")"
check "there are 8 files at most" at_least 8 "$(find "$work/results" -type f | wc -l)"
check "with the jobs and logs" holds "$(tar -tzf "$work/results/kept.tar.gz")" "runs/wide8-bf16/metrics.jsonl"
check "our programs find the bundle's libraries first" holds "$(grep ^LD_LIBRARY_PATH "$work/environment")" "/holdfast/lib"

cp "$work/results/result.txt" "$work/first.txt"
rm -rf "$work/results"
check "the second call" ends 1 "${on_fake[@]}" "$work/short.sh" "$work/fake.tar.gz" second 200
check "begins with what was not good" said "of the first call once more: test attention,test kernels,test nccl,world hosts"
check "and runs it" row "world hosts: 2 x 2 ranks" "ok"
check "and nothing that was" no_row "bits bf16: again"
check "then what was not in the first" row "wide8 fp8" "40000 +tokens/s, expected 55.0k"
check "a row that does not fit the card is left out" row "7B bf16" "skipped +does not fit"
check "for one that does" row "7B bf16, moments on the host" "40000"
check "a rank is killed and the others end" row "killed rank" "ok +the others ended within"
check "and it is resumed" row "killed rank: resumed" "ok +the bits of smoke"
check "without PyTorch its row is skipped" row "torch" "skipped"

rm -rf "$work/results" "$work/first.txt" "$fake"/tests/gpu_attention
pack
check "without graphs it goes on where they fail" \
  ends 1 "${on_fake[@]}" GRAPHS_FAIL=yes "$work/short.sh" "$work/fake.tar.gz" first 200
check "which is said" row "smoke: without graphs" "ok"
check "and rows behind it run so" row "bits bf16: again" "ok"
rm -rf "$work/results"
check "what has no time left is not reached" ends 1 "${on_fake[@]}" "$work/short.sh" "$work/fake.tar.gz" first 13
check "and is no pass" row "parity: GPU beside CPU" "unreached"

rm -rf "$work/results"
program "$fake/tests/gpu_bench" <<<'trap "" TERM; sleep 1000'
pack
"${on_fake[@]}" "$work/short.sh" "$work/fake.tar.gz" first 200 >"$work/out" 2>&1 &
pid=$!
hangs() { pgrep -f holdfast/tests/gpu_bench >/dev/null; }
ended() { ! hangs; }
check "while a row hangs" soon 60 hangs
check "those before it are in the file" grep -q ' smoke  *ok' "$work/results/result.txt"
kill -TERM "$pid"
wait "$pid" 2>/dev/null
check "a call that is killed takes it along" soon 10 ended
check "and says so" holds "$(tail -n 1 "$work/results/result.txt")" "VERDICT broken off"

conclude
