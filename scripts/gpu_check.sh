#!/usr/bin/env bash
# Everything that only a GPU can show, on a machine with one H100 or H200 that has a driver and CUDA's libraries, and
# nothing else of ours: run it from an unpacked bundle that was made with tests (scripts/gpu_check.md says how, and what to
# run first when there is half an hour).
#
#   tests/gpu_check.sh [--within SECONDS] [STAGE[:PART]...]
#   tests/gpu_check.sh --list [STAGE[:PART]...]
#   tests/gpu_check.sh --plan CLUSTER.toml [speed[:PART]...]
#
#   kernels    every kernel, product and attention against fp64 and the CPU's; NCCL with itself
#   parity     20 steps on the GPU beside the CPU's; 2 and 4 ranks on one GPU, all strategies, beside one rank
#   repeat     the same run twice, a run that was interrupted, and graphs against none: the same bits
#   sanitizer  compute-sanitizer's memcheck and racecheck on the own kernels, where it is installed
#   bench      every operator beside the bandwidth of a copy and the best product of this GPU
#   speed      tokens per second: 124M, 1.5B, Llama-2-7B and Llama-3-8B, beside PyTorch if it is here
#
# STAGE:PART runs the rows of a stage that have PART in their names, as in speed:7B; --list prints the rows and runs nothing;
# --plan asks the planner whether the rows of speed fit a machine; --within starts no row later than that, and ends what is
# running a minute later.
# A row is printed when it is done, and added to gpu_check.txt in $OUT (or here) at once; a table and a line RESULT {json} end
# it, and gpu_check.json has the same. What a row starts is killed after its limit, and left behind where not even that ends
# it: a GPU that hangs delays no result.
# CUDA, cuDNN and NCCL are found by the loader, in $HOLDFAST_CUDA_LIBS (folders, with colons), /usr/local/cuda*, and where
# Python packages have them (site-packages/nvidia/*/lib). Only our own programs are told; PyTorch keeps its environment.
#
# Exit codes: 0 all rows are good, 1 some are not, 2 wrong command line, 3 libraries are missing, 77 no GPU: nothing was tested.
# shellcheck disable=SC2317 # limited() calls what it is given
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
train=$root/bin/holdfast-train tests=$root/tests models=$root/share/holdfast/configs/models
all_stages=(kernels parity repeat sanitizer bench speed)

mode=run within=0 cluster='' asked=()
while (($# > 0)); do
  case $1 in
    --list) mode=list ;;
    --libs) mode=libs ;; # for tests: prints the folders of libraries that it found
    --plan) mode=plan cluster=${2-}; shift ;;
    --within) within=${2-}; shift ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) echo "gpu_check: there is no option $1 (--list, --plan, --within)" >&2; exit 2 ;;
    *)
      [[ " ${all_stages[*]} " == *" ${1%%:*} "* ]] || { echo "gpu_check: there is no stage ${1%%:*} (${all_stages[*]})" >&2; exit 2; }
      asked+=("$1")
      ;;
  esac
  shift || { echo "gpu_check: an option lacks its value" >&2; exit 2; }
done
[[ $within =~ ^[0-9]+$ ]] || { echo "gpu_check: --within wants seconds" >&2; exit 2; }
((${#asked[@]} > 0)) || asked=("${all_stages[@]}")
[[ $mode != plan ]] || asked=("$(printf '%s\n' "${asked[@]}" | grep '^speed' | head -n 1)")
for needed in "$train" "$tests/gpu_kernels" "$tests/make_tokens"; do
  [[ $mode == list || -x $needed ]] || { echo "gpu_check: $needed is missing. Run it from a bundle made with --with-tests?" >&2; exit 2; }
done

out=${OUT:-$PWD}
work=$(mktemp -d "${TMPDIR:-/tmp}/hf-gpu.XXXXXX")
group='' # of the processes that the current row has started
end_group() {
  [[ -n $group ]] || return 0
  kill -KILL -- "-$group" 2>/dev/null
  pkill -KILL -f -- "--run-dir $work/" 2>/dev/null # ranks, which mpirun gives groups of their own
}
trap 'end_group; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

# ---- where CUDA's libraries are

# Folders in which they may be, in the order in which they are asked.
library_folders() {
  local folder site
  tr ':' '\n' <<<"${HOLDFAST_CUDA_LIBS-}"
  for folder in "${CUDA_HOME:-/usr/local/cuda}" /usr/local/cuda /usr/local/cuda-*; do
    printf '%s\n' "$folder/lib64" "$folder/lib" "$folder/targets/x86_64-linux/lib"
  done
  {
    # PyTorch's own Python knows best; a python3 that hangs is no help.
    timeout -k 5 20 python3 -c 'import site, sys; print("\n".join(sys.path + site.getsitepackages() + [site.getusersitepackages()]))' 2>/dev/null
    for site in "${VIRTUAL_ENV:-/nowhere}" "${CONDA_PREFIX:-/nowhere}" /usr /usr/local /opt/* /root/.local; do
      printf '%s\n' "$site"/lib/python3*/site-packages "$site"/lib/python3*/dist-packages
    done
  } | while read -r site; do
    [[ -n $site && -d $site/nvidia ]] || continue
    for folder in "$site"/nvidia/*/lib; do printf '%s\n' "$folder"; done
  done
}
# What our programs lack when they are loaded with the folders of $libraries; NCCL and cuDNN's parts are opened later.
lacking() {
  local object
  {
    # A program of a bundle finds its own loader: ldd does not know of it.
    for object in "$tests"/gpu_* "$root/bin/holdfast-train"; do
      [[ -f $object ]] && LD_LIBRARY_PATH=$libraries LD_TRACE_LOADED_OBJECTS=1 "$object" 2>/dev/null
    done
    object=$root/lib/holdfast/libholdfast-cuda.so
    [[ -f $object ]] && LD_LIBRARY_PATH=$libraries ldd "$object" 2>/dev/null
    ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2 ' || echo 'libnccl.so.2 => not found'
  } | awk '/=> not found/ {print $1}' | sort -u
}
find_libraries() {
  local folder name folders=() wanted=()
  libraries=$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  mapfile -t wanted < <(lacking)
  ((${#wanted[@]} > 0)) || return 0
  mapfile -t folders < <(library_folders | awk 'NF && !seen[$0]++')
  for name in "${wanted[@]}"; do
    for folder in "${folders[@]}"; do
      [[ -e $folder/$name ]] || continue
      [[ ":$libraries:" == *":$folder:"* ]] || libraries+=:$folder
      break
    done
  done
  # What one package of a family needs while it runs (nvrtc, cuDNN's parts) is in the others.
  mapfile -t folders < <(tr ':' '\n' <<<"$libraries" | grep '/nvidia/[^/]*/lib$')
  ((${#folders[@]} == 0)) || for folder in "${folders[0]%/*/lib}"/*/lib; do
    [[ ":$libraries:" == *":$folder:"* ]] || libraries+=:$folder
  done
}

# ---- rows

stage='' part='' name='' row_began=0
rows=() failed=0
# wanted NAME: this row is to be run now; the rest of the row is about `name`
wanted() {
  name=$1 row_began=$SECONDS
  [[ -z $part || $name == *"$part"* ]] || return 1
  case $mode in
    list) printf '%s\t%s\n' "$stage" "$name"; return 1 ;;
    plan) [[ $stage == speed && $name != *PyTorch* ]] || return 1 ;;
    *)
      if ((within > 0 && SECONDS >= within)); then
        note skipped "no time is left"
        return 1
      fi
      ;;
  esac
}
# note ok|FAILED|skipped|VALUE [WHAT]: what became of the row, where everybody sees it at once
note() {
  rows+=("$name"$'\t'"$1"$'\t'"${2-}")
  [[ $1 != FAILED ]] || failed=1
  local line
  line=$(printf '%-44s %-10s %s (%d s)' "$name" "$1" "${2-}" $((SECONDS - row_began)))
  printf '%s\n' "$line"
  [[ $mode != run ]] || printf '%s\n' "$line" >>"$out/gpu_check.txt"
}

# Our programs, in an environment of their own.
ours() {
  local pmix=$root/lib/x86_64-linux-gnu/pmix2
  env LD_LIBRARY_PATH="$libraries" PATH="$root/tests:$PATH" OPAL_PREFIX="$root" PMIX_PREFIX="$pmix" \
    PMIX_PKGLIBDIR="$pmix/lib/pmix" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$@"
}
never() { false; }
# limited SECONDS LOG DONE COMMAND...: runs it until it ends or DONE, asked now and then, is true. Its exit code; 0 when DONE
# was true, 124 when it was killed at the limit, 125 when not even that ended it: then it is left behind.
limited() {
  local limit=$((SECONDS + $1)) log=$2 done=$3 code=124 i
  shift 3
  ((within == 0 || limit <= within + 60)) || limit=$((within + 60))
  set -m # a process group of its own
  "$@" >"$log" 2>&1 </dev/null &
  group=$!
  set +m
  while kill -0 "$group" 2>/dev/null; do
    if "$done"; then code=0; break; fi
    ((SECONDS < limit)) || break
    sleep 0.1
  done
  if ! kill -0 "$group" 2>/dev/null; then
    wait "$group" 2>/dev/null
    code=$?
  else
    end_group
    for ((i = 0; i < 100; ++i)); do
      kill -0 "$group" 2>/dev/null || break
      sleep 0.1
    done
    if kill -0 "$group" 2>/dev/null; then
      disown "$group" 2>/dev/null
      ((code == 0)) || code=125
      echo "gpu_check: process $group does not even end by SIGKILL; it is left behind" >&2
    else
      wait "$group" 2>/dev/null
    fi
  fi
  end_group # what it may have left
  group=''
  return "$code"
}
why() { # why CODE: of limited()
  case $1 in
    124) echo "killed at its time limit" ;;
    125) echo "does not end, not even by SIGKILL" ;;
    *) echo "exit $1" ;;
  esac
}
# passes COMMAND...: its exit code decides; 77 means that it found nothing to do
passes() {
  local code
  limited 175 "$work/log" never "$@"
  code=$?
  case $code in
    0) note ok "$(grep -E '^\[  PASSED  \]' "$work/log" | tail -n 1)" ;;
    77) note skipped "$(tail -n 1 "$work/log")" ;;
    *)
      grep -E '^\[  FAILED  \]' "$work/log" | sort -u | head -n 20
      tail -n 40 "$work/log"
      note FAILED "$(why "$code")"
      ;;
  esac
  return "$code"
}
number() { sed -nE "s/.*\"$2\":([-+0-9.e]+).*/\1/p" "$1"; } # number FILE KEY: of every line
median() { sort -g | awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]; else print 0}'; }
digest_of() { sed -nE 's/.*"state_digest": *"([0-9a-f]+)".*/\1/p' "$work/$1/result.json" 2>/dev/null; }

tokens() { # tokens VOCABULARY: a token file of that vocabulary
  [[ -s $work/tokens-$1.bin ]] || ours "$tests/make_tokens" "$work/tokens-$1.bin" "$1" 2000000 || exit 1
}
# run NAME RANKS SETTING...: a training run of job.toml; its output is in $work/NAME.log. As limited(); `until` is its DONE.
run() {
  local dir=$1 ranks=$2 start=() setting sets=()
  shift 2
  ((ranks == 1)) || start=(mpirun --mca plm isolated --oversubscribe --bind-to none -n "$ranks")
  for setting; do sets+=(--set "$setting"); done
  limited 170 "$work/$dir.log" "${until:-never}" \
    ours env HOLDFAST_SHARE_GPU=1 OMP_NUM_THREADS="${threads:-2}" "${start[@]}" "$train" "$work/job.toml" --run-dir "$work/$dir" "${sets[@]}"
}
small_job() {
  [[ $mode == run ]] || return 0
  tokens 1024
  cat >"$work/model.toml" <<END
[model]
name = "small"
vocabulary = 1024
width = 256
layers = 4
heads = 4
kv_heads = 2
ffn = 512
max_sequence = 256
END
  cat >"$work/job.toml" <<END
[model]
file = "$work/model.toml"
[data]
tokens = "$work/tokens-1024.bin"
[train]
device = "cuda"
sequence = 256
global_batch = 8
micro_batch = 1
lanes = 4
steps = 20
[precision]
parameters = "bf16"
[optim]
warmup_steps = 5
[checkpoint]
every = 10
END
}
# once NAME RANKS SETTING...: the run that others are compared with, unless it was done already
once() {
  [[ -s $work/$1/result.json ]] || run "$@" || tail -n 20 "$work/$1.log"
}

# ---- stages

stage_kernels() {
  local program
  for program in kernels products attention nccl; do
    [[ $mode == list || -x $tests/gpu_$program ]] || continue
    case $program in
      nccl) wanted "NCCL with itself" || continue ;;
      *) wanted "$program against fp64 and CPU" || continue ;;
    esac
    passes ours "$tests/gpu_$program"
  done
}

# worst difference of the losses of two runs
loss_gap() {
  paste <(number "$work/$1/metrics.jsonl" loss) <(number "$work/$2/metrics.jsonl" loss) |
    awk '{d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d; ++n} END {if (n == 0) worst = "none"; print worst}'
}
# near GAP LIMIT
near() {
  if [[ $1 != none ]] && awk "BEGIN {exit !($1 <= $2)}"; then note ok "largest gap of a loss $1"; else note FAILED "largest gap of a loss $1"; fi
}

stage_parity() {
  small_job
  if wanted "a run on the GPU"; then
    once gpu 1
    if [[ -n $(digest_of gpu) ]]; then note ok "$(sed -nE 's/.*(device: .*)/\1/p' "$work/gpu.log" | head -n 1)"; else note FAILED; fi
  fi
  if wanted "GPU beside CPU, bf16, 20 steps"; then
    once gpu 1
    threads=8 once cpu 1 train.device=cpu
    near "$(loss_gap gpu cpu)" 2e-3
  fi
  if wanted "GPU beside CPU, 8-bit products, 20 steps"; then
    once gpu8 1 precision.products=fp8
    threads=8 once cpu8 1 train.device=cpu precision.products=fp8
    near "$(loss_gap gpu8 cpu8)" 2e-2
  fi
  local strategy ranks dir size
  for ranks in 2 4; do
    for strategy in no_shard full_shard shard_grad_op hybrid_shard hfsdp; do
      wanted "$strategy, $ranks ranks on one GPU" || continue
      once gpu 1
      dir=$strategy-$ranks
      size=()
      [[ $strategy != hybrid_shard && $strategy != hfsdp ]] || size=(shard.group=2)
      # The same choices of algorithms as the run of one rank.
      mkdir -p "$work/$dir" && cp "$work/gpu/tuning.json" "$work/$dir/" 2>/dev/null
      if ! run "$dir" "$ranks" "shard.strategy=$strategy" "${size[@]}"; then
        tail -n 20 "$work/$dir.log"
        note FAILED
      elif [[ $(digest_of "$dir") == "$(digest_of gpu)" ]]; then
        note ok "the bits of one rank"
      else
        near "$(loss_gap "$dir" gpu)" 2e-3
      fi
    done
  done
}

# same A B: both ended, in the same bits
same() {
  if [[ -n $(digest_of "$1") && $(digest_of "$1") == "$(digest_of "$2")" ]]; then
    note ok "state $(digest_of "$1")"
  else
    note FAILED "$(digest_of "$1") and $(digest_of "$2")"
  fi
}
# again KIND OTHER SETTING...: a run that begins with the algorithms of the first one
again() {
  local kind=$1 other=$2
  shift 2
  once "$kind-1" 1 "precision.products=$kind"
  mkdir -p "$work/$kind-$other"
  cp "$work/$kind-1/tuning.json" "$work/$kind-$other/" 2>/dev/null
  run "$kind-$other" 1 "precision.products=$kind" "$@"
  same "$kind-1" "$kind-$other"
}
stage_repeat() {
  small_job
  local kind
  for kind in bf16 fp8; do
    if wanted "$kind: run again"; then again $kind 2; fi
    # A traced step runs its kernels one by one, without graphs.
    if wanted "$kind: graphs against single kernels"; then again $kind traced trace.count=20; fi
    if wanted "$kind: moments in host memory"; then again $kind offload shard.offload=moments; fi
    if wanted "$kind: without saves, through the window"; then again $kind window checkpoint.every=0; fi
    if wanted "$kind: resumed at step 10"; then
      # Interrupted after step 10: the schedule is that of 20 steps, the process ends by a kill.
      once "$kind-1" 1 "precision.products=$kind"
      cp -r "$work/$kind-1" "$work/$kind-resumed"
      rm -rf "$work/$kind-resumed/"{checkpoints/step-00000020,durable.json,result.json}
      run "$kind-resumed" 1 "precision.products=$kind"
      same "$kind-1" "$kind-resumed"
    fi
  done
}

stage_sanitizer() {
  local tool check
  tool=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  for check in memcheck racecheck; do
    wanted "compute-sanitizer $check" || continue
    if [[ -x $tool ]]; then
      passes ours "$tool" --tool "$check" --error-exitcode 1 "$tests/gpu_kernels" --gtest_brief=1
    else
      note skipped "it is not installed"
    fi
  done
}

stage_bench() {
  wanted "operators" || return
  local code
  limited 175 "$work/bench" never ours "$tests/gpu_bench"
  code=$?
  grep -v '^RESULT' "$work/bench"
  sed -n 's/^RESULT //p' "$work/bench" >"$out/gpu_bench.json"
  if ((code == 0)); then note ok "$(head -n 1 "$work/bench")"; else note FAILED "$(why "$code")"; fi
}

steps_done() { number "$work/speed/metrics.jsonl" step 2>/dev/null | wc -l; }
enough_steps() { (($(steps_done) >= 8)); }
# speed MODEL SEQUENCE GLOBAL_BATCH MICRO_BATCH GFLOP_CAUSAL GFLOP_FULL SETTING...
speed() {
  local model=$1 sequence=$2 global_batch=$3 micro_batch=$4 causal=$5 full=$6 value planned in_steps code vocabulary setting sets=() where=''
  shift 6
  vocabulary=$(sed -nE 's/^vocabulary *= *([0-9]+).*/\1/p' "$models/$model.toml")
  [[ $mode == plan ]] || tokens "$vocabulary"
  [[ -z $cluster ]] || where="file = \"$cluster\""
  # Nothing of the state is kept on the host: neither snapshots (a run without agents has none) nor saves.
  cat >"$work/job.toml" <<END
[cluster]
nodes = 1
ranks_per_node = 1
$where
[model]
file = "$models/$model.toml"
[data]
tokens = "$work/tokens-$vocabulary.bin"
[train]
device = "cuda"
sequence = $sequence
global_batch = $global_batch
micro_batch = $micro_batch
lanes = 1
[precision]
parameters = "bf16"
[shard]
strategy = "no_shard"
[optim]
warmup_steps = 1
[checkpoint]
every = 0
local = "none"
END
  if [[ $mode == plan ]]; then
    for setting; do sets+=(--set "$setting"); done
    if ours "$root/bin/holdfast" plan "$work/job.toml" "${sets[@]}" >"$work/plan.log" 2>&1; then
      note ok "$(grep -oE 'together about [0-9.]+ [kMGT]B of [0-9.]+ [kMGT]B' "$work/plan.log" | head -n 1) a rank"
    else
      tail -n 5 "$work/plan.log"
      note FAILED "it does not fit"
    fi
    return
  fi
  rm -rf "$work/speed"
  # It is ended after its eighth step: nobody needs the checkpoint that a run writes in the end.
  until=enough_steps threads=$(nproc) run speed 1 train.steps=100000 "$@"
  code=$?
  if ! enough_steps; then
    tail -n 5 "$work/speed.log"
    note FAILED "$(why "$code"), after $(steps_done) of 8 steps"
    return
  fi
  # Steps 3 to 8; of the others two build graphs.
  value=$(number "$work/speed/metrics.jsonl" tokens_per_s | sed -n 3,8p | median)
  in_steps=$(number "$work/speed/metrics.jsonl" step_s | head -n 8 | awk '{s += $1} END {printf "%.0f", s}')
  planned=$(sed -nE 's/.*each rank plans ([0-9]+) bytes of memory.*/\1/p' "$work/speed.log" | head -n 1)
  note "$(printf '%.0f' "$value")" "tokens/s; $(awk "BEGIN {printf \"%.0f TFLOP/s causal, %.0f full\", $value * $causal / 1000, $value * $full / 1000}"); planned $(awk "BEGIN {printf \"%.1f GB\", ${planned:-0} / 1e9}"); $in_steps s of them in steps"
}
# torch ARGUMENT...: in the environment that this script was started in
torch() {
  local value code
  # Without the working folder, from which -c takes modules, too.
  if ! timeout -k 5 60 python3 -c 'import sys; sys.path = [p for p in sys.path if p]; import torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    note skipped "no PyTorch with CUDA"
    return
  fi
  limited 175 "$work/torch.log" never python3 "$tests/train_gpu_torch.py" "$@"
  code=$?
  if ((code == 0)); then
    value=$(tail -n 1 "$work/torch.log" | sed -nE 's/.*"tokens_per_s": ([0-9.]+).*/\1/p')
    note "$(printf '%.0f' "$value")" "tokens/s"
  else
    tail -n 5 "$work/torch.log"
    note FAILED "$(why "$code")"
  fi
}
# GFLOP per token: 6 (N - V d) + 6 L d s (causal) or 12 L d s (full).
stage_speed() {
  local seven="vocabulary=32000,width=4096,layers=32,heads=32,kv_heads=32,ffn=11008,sequence=4096"
  if wanted "124M s1024 bf16"; then speed llama-124m 1024 32 16 0.798 0.855; fi
  if wanted "124M s1024 bf16, PyTorch"; then
    torch --shape vocabulary=50304,width=768,layers=12,heads=12,kv_heads=12,ffn=2048,sequence=1024 --global-batch 32 --micro-batch 16
  fi
  if wanted "1.5B s4096 bf16"; then speed llama-1.5b 4096 4 2 10.30 11.71; fi
  if wanted "1.5B s4096 bf16, PyTorch"; then
    torch --shape vocabulary=32000,width=2048,layers=28,heads=16,kv_heads=16,ffn=5504,sequence=4096 --global-batch 4 --micro-batch 2
  fi
  if wanted "Llama-2-7B s4096 bf16"; then speed llama2-7b 4096 8 1 42.86 46.08 train.activation_checkpointing=selective; fi
  if wanted "Llama-2-7B s4096 bf16, free"; then
    speed llama2-7b 4096 8 1 42.86 46.08 train.activation_checkpointing=selective train.deterministic=false
  fi
  if wanted "Llama-2-7B s4096 8-bit"; then
    speed llama2-7b 4096 8 1 42.86 46.08 train.activation_checkpointing=selective precision.products=fp8
  fi
  if wanted "Llama-2-7B s4096 bf16, PyTorch"; then torch --shape "$seven" --global-batch 8 --micro-batch 1 --steps 3 --warmup 2; fi
  # With fp32 moments it needs 152 GB.
  if wanted "Llama-3-8B s8192 bf16, bf16 moments"; then
    speed llama3-8b 8192 4 1 51.47 57.91 train.activation_checkpointing=full precision.moments=bf16
  fi
}

# ---- is there anything to run on?

libraries=''
if [[ $mode != list ]]; then find_libraries; fi
if [[ $mode == libs ]]; then
  tr ':' '\n' <<<"${libraries#"$root/lib"}" | sed '/^$/d'
  exit 0
fi
if [[ $mode == run ]]; then
  mapfile -t missing < <(lacking | grep -v '^libnccl')
  if ((${#missing[@]} > 0)); then
    echo "gpu_check: ${missing[*]} cannot be found, so nothing was tested. Name the folders in HOLDFAST_CUDA_LIBS?" >&2
    exit 3
  fi
  limited 60 "$work/probe" never ours "$tests/gpu_kernels" --gtest_filter=-'*'
  case $? in
    0) ;;
    77)
      echo "gpu_check: $(tail -n 1 "$work/probe"). Nothing was tested." >&2
      exit 77
      ;;
    124 | 125)
      echo "gpu_check: the GPU did not answer within 60 s. Nothing was tested; does nvidia-smi answer?" >&2
      exit 1
      ;;
    *)
      tail -n 5 "$work/probe" >&2
      echo "gpu_check: the GPU cannot be asked. Nothing was tested." >&2
      exit 3
      ;;
  esac
  mkdir -p "$out"
  printf -- '--- gpu_check %s\n' "$(date -u +%FT%TZ)" >>"$out/gpu_check.txt"
fi

for one in "${asked[@]}"; do
  stage=${one%%:*} part=''
  [[ $one != *:* ]] || part=${one#*:}
  [[ $mode != run ]] || printf -- '--- %s (%d s)\n' "$one" "$SECONDS"
  case $stage in
    kernels) stage_kernels ;;
    parity) stage_parity ;;
    repeat) stage_repeat ;;
    sanitizer) stage_sanitizer ;;
    bench) stage_bench ;;
    speed) stage_speed ;;
  esac
done
[[ $mode != list ]] || exit 0
if ((${#rows[@]} == 0)); then
  echo "gpu_check: no row has that in its name. --list prints them?" >&2
  exit 2
fi
[[ $mode == run ]] || exit "$failed"

printf -- '---\n'
json=''
for row in "${rows[@]}"; do
  IFS=$'\t' read -r name result what <<<"$row"
  printf '%-44s %-10s %s\n' "$name" "$result" "$what"
  what=${what//\\/} what=${what//\"/}
  json+="${json:+,}\"$name\":{\"result\":\"$result\",\"what\":\"$what\"}"
done
printf '{%s}\n' "$json" >"$out/gpu_check.json"
printf 'RESULT {%s}\n' "$json"
exit "$failed"
