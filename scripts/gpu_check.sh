#!/usr/bin/env bash
# Everything that only a GPU can show, on a machine with one H100 or H200 that has a driver and CUDA's libraries, and
# nothing else of ours: run it from an unpacked bundle (scripts/bundle.sh BUILD FILE --with-tests).
#
#   tests/gpu_check.sh [STAGE...]     kernels parity repeat sanitizer bench speed; all of them unless some are named
#
#   kernels    every kernel, product and attention against fp64 and the CPU's, on random inputs and poisoned outputs
#   parity     20 steps on the GPU beside the CPU's; 2 and 4 ranks on one GPU, all strategies, beside one rank
#   repeat     the same run twice, a run that was interrupted, and graphs against none: the same bits
#   sanitizer  compute-sanitizer's memcheck and racecheck on the own kernels, where it is installed
#   bench      every operator beside the bandwidth of a copy and the best product of this GPU
#   speed      tokens per second: 124M, 1.5B and Llama-2-7B (bf16, 8-bit, deterministic and free), beside PyTorch if it is here
# A program or a run takes three minutes at most, and so do most stages; speed has nine of them, and parity and repeat
# twelve small ones each. Results come as they are found; a table and a line RESULT {json} end it, and
# gpu_check.json in $OUT (or here) has the same.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
train=$root/bin/holdfast-train tests=$root/tests models=$root/share/holdfast/configs/models
for needed in "$train" "$tests/gpu_kernels" "$tests/make_tokens"; do
  [[ -x $needed ]] || { echo "gpu_check: $needed is missing. Run it from a bundle made with --with-tests?" >&2; exit 2; }
done
stages=("$@")
((${#stages[@]} > 0)) || stages=(kernels parity repeat sanitizer bench speed)

out=${OUT:-$PWD}
work=$(mktemp -d "${TMPDIR:-/tmp}/hf-gpu.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
export OPAL_PREFIX=$root PMIX_PREFIX=$root/lib/x86_64-linux-gnu/pmix2 PMIX_MCA_pcompress_base_silence_warning=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PATH=$root/bin:$PATH
export LD_LIBRARY_PATH=$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for cuda in /usr/local/cuda/lib64 /usr/local/cuda/lib; do [[ -d $cuda ]] && LD_LIBRARY_PATH+=:$cuda; done

rows=() failed=0
# note NAME ok|FAILED|skipped|VALUE [WHAT]: a line of the table
note() {
  rows+=("$1"$'\t'"$2"$'\t'"${3-}")
  [[ $2 != FAILED ]] || failed=1
  printf '%-44s %-10s %s\n' "$1" "$2" "${3-}"
}
# passes NAME COMMAND...: its exit code decides; 77 means that it found nothing to do
passes() {
  local name=$1 code
  shift
  timeout 175 "$@" >"$work/log" 2>&1
  code=$?
  case $code in
    0) note "$name" ok "$(grep -E '^\[  PASSED  \]' "$work/log" | tail -n 1)" ;;
    77) note "$name" skipped "$(tail -n 1 "$work/log")" ;;
    *)
      tail -n 40 "$work/log"
      note "$name" FAILED "exit $code"
      ;;
  esac
  return $code
}
number() { sed -nE "s/.*\"$2\":([-+0-9.e]+).*/\1/p" "$1"; } # number FILE KEY: of every line
median() { sort -g | awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]; else print 0}'; }
digest_of() { sed -nE 's/.*"state_digest": *"([0-9a-f]+)".*/\1/p' "$work/$1/result.json" 2>/dev/null; }

tokens() { # tokens VOCABULARY: a token file of that vocabulary
  [[ -s $work/tokens-$1.bin ]] || "$tests/make_tokens" "$work/tokens-$1.bin" "$1" 2000000 || exit 1
}
# run NAME RANKS SETTING...: a training run on the small model of this check; its output is in $work/NAME.log
run() {
  local name=$1 ranks=$2 start=() setting sets=()
  shift 2
  ((ranks == 1)) || start=(mpirun --mca plm isolated --oversubscribe --bind-to none -n "$ranks")
  for setting; do sets+=(--set "$setting"); done
  HOLDFAST_SHARE_GPU=1 OMP_NUM_THREADS=${threads:-2} timeout 170 "${start[@]}" "$train" "$work/job.toml" --run-dir "$work/$name" "${sets[@]}" >"$work/$name.log" 2>&1
}
small_job() {
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
micro_batch = 1
leaves = 8
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

stage_kernels() {
  for program in kernels products attention; do passes "$program against fp64 and CPU" "$tests/gpu_$program"; done
}

# worst difference of the losses of two runs
loss_gap() {
  paste <(number "$work/$1/metrics.jsonl" loss) <(number "$work/$2/metrics.jsonl" loss) |
    awk '{d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d; ++n} END {if (n == 0) worst = "none"; print worst}'
}
# near NAME GAP LIMIT
near() {
  if [[ $2 != none ]] && awk "BEGIN {exit !($2 <= $3)}"; then note "$1" ok "largest gap of a loss $2"; else note "$1" FAILED "largest gap of a loss $2"; fi
}

stage_parity() {
  small_job
  if ! run gpu 1; then
    tail -n 20 "$work/gpu.log"
    note "a run on the GPU" FAILED
    return
  fi
  note "a run on the GPU" ok "$(sed -nE 's/.*(device: .*)/\1/p' "$work/gpu.log" | head -n 1)"
  threads=8 run cpu 1 train.device=cpu || tail -n 20 "$work/cpu.log"
  near "GPU beside CPU, bf16, 20 steps" "$(loss_gap gpu cpu)" 2e-3
  run gpu8 1 precision.products=fp8 && threads=8 run cpu8 1 train.device=cpu precision.products=fp8
  near "GPU beside CPU, 8-bit products, 20 steps" "$(loss_gap gpu8 cpu8)" 2e-2
  local strategy ranks name group
  for ranks in 2 4; do
    for strategy in no_shard full_shard shard_grad_op hybrid_shard hfsdp; do
      name=$strategy-$ranks
      group=()
      [[ $strategy != hybrid_shard && $strategy != hfsdp ]] || group=(shard.group=2)
      # The same choices of algorithms as the run of one rank.
      mkdir -p "$work/$name" && cp "$work/gpu/tuning.json" "$work/$name/" 2>/dev/null
      if ! run "$name" "$ranks" "shard.strategy=$strategy" "${group[@]}"; then
        tail -n 20 "$work/$name.log"
        note "$strategy, $ranks ranks on one GPU" FAILED
      elif [[ $(digest_of "$name") == "$(digest_of gpu)" ]]; then
        note "$strategy, $ranks ranks on one GPU" ok "the bits of one rank"
      else
        near "$strategy, $ranks ranks on one GPU" "$(loss_gap "$name" gpu)" 2e-3
      fi
    done
  done
}

# same NAME A B: both ended, in the same bits
same() {
  if [[ -n $(digest_of "$2") && $(digest_of "$2") == "$(digest_of "$3")" ]]; then
    note "$1" ok "state $(digest_of "$2")"
  else
    note "$1" FAILED "$(digest_of "$2") and $(digest_of "$3")"
  fi
}
stage_repeat() {
  small_job
  local kind sets
  for kind in bf16 fp8; do
    sets=("precision.products=$kind")
    run "$kind-1" 1 "${sets[@]}"
    mkdir -p "$work/$kind-2" "$work/$kind-traced" "$work/$kind-offload"
    for other in 2 traced offload; do cp "$work/$kind-1/tuning.json" "$work/$kind-$other/" 2>/dev/null; done
    run "$kind-2" 1 "${sets[@]}"
    same "$kind: run again" "$kind-1" "$kind-2"
    # A traced step runs its kernels one by one, without graphs.
    run "$kind-traced" 1 "${sets[@]}" trace.count=20
    same "$kind: graphs against single kernels" "$kind-1" "$kind-traced"
    run "$kind-offload" 1 "${sets[@]}" shard.offload=moments
    same "$kind: moments in host memory" "$kind-1" "$kind-offload"
    # Interrupted after step 10: the schedule is that of 20 steps, the process ends by a kill.
    cp -r "$work/$kind-1" "$work/$kind-resumed"
    rm -rf "$work/$kind-resumed/checkpoints/step-00000020" "$work/$kind-resumed/result.json"
    run "$kind-resumed" 1 "${sets[@]}"
    same "$kind: resumed at step 10" "$kind-1" "$kind-resumed"
  done
}

stage_sanitizer() {
  local tool
  tool=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  if [[ ! -x $tool ]]; then
    note "compute-sanitizer" skipped "it is not installed"
    return
  fi
  for check in memcheck racecheck; do
    passes "compute-sanitizer $check" "$tool" --tool "$check" --error-exitcode 1 "$tests/gpu_kernels" --gtest_brief=1
  done
}

stage_bench() {
  timeout 175 "$tests/gpu_bench" >"$work/bench" 2>&1
  local code=$?
  grep -v '^RESULT' "$work/bench"
  if ((code == 77)); then note "operators" skipped "no GPU"; return; fi
  if ((code == 0)); then note "operators" ok "$(head -n 1 "$work/bench")"; else note "operators" FAILED; fi
  sed -n 's/^RESULT //p' "$work/bench" >"$out/gpu_bench.json"
}

# speed NAME MODEL SEQUENCE ROWS LEAVES GFLOP_CAUSAL GFLOP_FULL SETTING...
speed() {
  local name=$1 model=$2 sequence=$3 rows_of_leaf=$4 leaves=$5 causal=$6 full=$7 value planned
  shift 7
  local vocabulary
  vocabulary=$(sed -nE 's/^vocabulary *= *([0-9]+).*/\1/p' "$models/$model.toml")
  tokens "$vocabulary"
  cat >"$work/job.toml" <<END
[model]
file = "$models/$model.toml"
[data]
tokens = "$work/tokens-$vocabulary.bin"
[train]
device = "cuda"
sequence = $sequence
micro_batch = $rows_of_leaf
leaves = $leaves
[precision]
parameters = "bf16"
[shard]
strategy = "no_shard"
[optim]
warmup_steps = 1
[checkpoint]
every = 0
END
  rm -rf "$work/speed"
  # It is ended after its eighth step: nobody needs the checkpoint that a run writes in the end.
  threads=$(nproc) run speed 1 train.steps=100000 "$@" &
  local pid=$!
  while kill -0 $pid 2>/dev/null && (($(number "$work/speed/metrics.jsonl" step 2>/dev/null | wc -l) < 8)); do sleep 0.2; done
  pkill -KILL -f "$work/job.toml" 2>/dev/null
  wait $pid 2>/dev/null
  if (($(number "$work/speed/metrics.jsonl" step 2>/dev/null | wc -l) < 8)); then
    tail -n 5 "$work/speed.log"
    note "$name" FAILED
    return
  fi
  # Steps 3 to 8; of the others two build graphs.
  value=$(number "$work/speed/metrics.jsonl" tokens_per_s | sed -n 3,8p | median)
  planned=$(sed -nE 's/.*planned per rank: ([0-9]+) bytes of memory.*/\1/p' "$work/speed.log" | head -n 1)
  note "$name" "$(printf '%.0f' "$value")" "tokens/s; $(awk "BEGIN {printf \"%.0f TFLOP/s causal, %.0f full\", $value * $causal / 1000, $value * $full / 1000}"); planned $(awk "BEGIN {printf \"%.1f GB\", ${planned:-0} / 1e9}")"
}
# torch NAME ARGUMENT...
torch() {
  local name=$1 value
  shift
  python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null || { note "$name" skipped "no PyTorch with CUDA"; return; }
  if timeout 175 python3 "$tests/train_gpu_torch.py" "$@" >"$work/torch.log" 2>&1; then
    value=$(tail -n 1 "$work/torch.log" | sed -nE 's/.*"tokens_per_s": ([0-9.]+).*/\1/p')
    note "$name" "$(printf '%.0f' "$value")" "tokens/s"
  else
    tail -n 5 "$work/torch.log"
    note "$name" FAILED
  fi
}
# GFLOP per token: 6 (N - V d) + 6 L d s (causal) or 12 L d s (full).
stage_speed() {
  speed "124M s1024 bf16" llama-124m 1024 16 2 0.798 0.855
  torch "124M s1024 bf16, PyTorch" --shape vocabulary=50304,width=768,layers=12,heads=12,kv_heads=12,ffn=2048,sequence=1024 --rows 16 --leaves 2
  speed "1.5B s4096 bf16" llama-1.5b 4096 2 2 10.30 11.71
  torch "1.5B s4096 bf16, PyTorch" --shape vocabulary=32000,width=2048,layers=28,heads=16,kv_heads=16,ffn=5504,sequence=4096 --rows 2 --leaves 2
  local seven="vocabulary=32000,width=4096,layers=32,heads=32,kv_heads=32,ffn=11008,sequence=4096"
  speed "Llama-2-7B s4096 bf16" llama2-7b 4096 1 8 42.86 46.08 train.recompute=selective
  speed "Llama-2-7B s4096 bf16, free" llama2-7b 4096 1 8 42.86 46.08 train.recompute=selective train.deterministic=false
  speed "Llama-2-7B s4096 8-bit" llama2-7b 4096 1 8 42.86 46.08 train.recompute=selective precision.products=fp8
  torch "Llama-2-7B s4096 bf16, PyTorch" --shape "$seven" --rows 1 --leaves 8 --steps 3 --warmup 2
  speed "Llama-3-8B s8192 bf16" llama3-8b 8192 1 4 51.47 57.91 train.recompute=full
}

for stage in "${stages[@]}"; do
  printf -- '--- %s (%d s)\n' "$stage" "$SECONDS"
  case $stage in
    kernels) stage_kernels ;;
    parity) stage_parity ;;
    repeat) stage_repeat ;;
    sanitizer) stage_sanitizer ;;
    bench) stage_bench ;;
    speed) stage_speed ;;
    *) echo "gpu_check: there is no stage $stage" >&2; exit 2 ;;
  esac
done

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
