#!/usr/bin/env bash
# Everything that only a GPU can show, on a machine with one GPU that is lent for some minutes. Nobody can think there, so this
# script does: it goes on after a failure, looks for its cause, and writes everything down at once. scripts/gpu_lease.md says
# how the bundle gets there and how to read what comes back.
#
#   gpu_lease.sh BUNDLE first|second BUDGET_S
#   gpu_lease.sh BUNDLE plan GIB
#
#   BUNDLE    the archive that scripts/gpu_prepare.sh made; its token files lie beside it
#   first     are kernels and products right, does the trainer run, what do operators cost, tokens/s of 7B's width with 8
#             layers, the same bits again, several ranks on the one card, tokens/s of 124M, the GPU beside the CPU
#   second    what failed or was not reached in the first call (first.txt beside BUNDLE is its result.txt), then FP8, lanes,
#             PyTorch, documents, free mode, a killed rank, 7B, ncu and racecheck
#   plan      which rows of speed fit a GPU with so much memory and a host with 128 GiB; needs no GPU
#   BUDGET_S  it ends by then
#
# In $OUT (or gpu-results) are 8 files of less than 16 MiB at most: result.txt (a line a row, the verdict last), log.txt (whole
# logs, cut in the middle), facts.txt, metrics.jsonl, numbers.jsonl, trace.json, ncu.csv.gz and kept.tar.gz (all that is small).
# Exit codes: 0 all rows are good, 1 some are not or were not reached, 2 wrong command line, 3 libraries are missing, 77 no GPU.
#
# LEASE_DRY=cpu runs the rows of the trainer where there is no GPU: on CPUs, with tiny shapes.
# shellcheck disable=SC2317 # functions that are called by name
set -uo pipefail
shopt -s nullglob
export LC_ALL=C PYTHONUNBUFFERED=1
trap '' PIPE # whoever reads along may leave

# ---- the rows
# Calls (1: first, 2: second; rows with the same letter run at once; or: only if the row before it gave no number; x: only if
# there is time for all of it), name, limit in seconds, tokens/s expected of an H100 80GB HBM3 and of an H200 (about: by hand; the
# others were measured), what runs.
# A row of `first` is run again in the second call if one of the same name failed; what follows a colon does not count.
some='train.activation_checkpointing=selective data.boundaries=false'
small='train.activation_checkpointing=full data.boundaries=false precision.moments=bf16'
table="
1    | parity: the run on the CPU        | 150 |           |           | reference
1 a  | test kernels                      |  75 |           |           | gtest gpu_kernels
1 a  | test products                     |  75 |           |           | gtest gpu_products
1 a  | test attention                    |  75 |           |           | gtest gpu_attention
1 a  | test nccl                         |  75 |           |           | gtest gpu_nccl
12   | retries                           |  80 |           |           | retries
12   | smoke                             |  40 |           |           | smoke
1    | bench 7B                          |  50 |           |           | bench
12   | wide8 bf16                        |  75 | 43.9k     | about 47k | speed wide8 10 $some
12or | wide4 bf16                        |  45 | about 80k | about 86k | speed wide4 10 $some
1 b  | bits bf16: again                  |  45 |           |           | again smoke
1 b  | bits bf16: without graphs         |  45 |           |           | again smoke trace.count=20
1 b  | bits bf16: resumed at step 10     |  45 |           |           | resumed smoke
1 b  | bits bf16: moments on the host    |  45 |           |           | again smoke shard.offload=moments
1 b  | bits fp8                          |  45 |           |           | base precision.products=fp8
1 c  | bits fp8: again                   |  40 |           |           | again bits-fp8 precision.products=fp8
1 c  | bits fp8: without graphs          |  40 |           |           | again bits-fp8 precision.products=fp8 trace.count=20
1 c  | bits fp8: resumed at step 10      |  40 |           |           | resumed bits-fp8 precision.products=fp8
1 d  | world ipc: 2 ranks                |  45 |           |           | world ipc 2 shard.strategy=full_shard
1 d  | world ipc: 2 x 2 ranks            |  45 |           |           | world ipc 4 shard.strategy=hybrid_shard shard.group=2
1    | world hosts: 2 ranks              |  45 |           |           | world hosts 2 shard.strategy=full_shard
1    | world one host: 2 ranks           |  45 |           |           | world multi 2 shard.strategy=full_shard
1    | world hosts: 2 x 2 ranks          |  50 |           |           | world pairs 4 shard.strategy=hybrid_shard shard.group=2
1    | world hosts: 4 ranks              |  50 |           |           | world hosts 4 shard.strategy=full_shard
1    | 124M bf16                         |  40 | 464k      | about 500k| speed 124M 10 data.boundaries=false
1    | bench 8B                          |  20 |           |           | bench 8192 4096 14336 32 8 4096 128256
1    | bench 124M                        |  20 |           |           | bench 32768 768 2048 12 12 1024 50304
1    | parity: GPU beside CPU            |   9 |           |           | parity
2    | wide8 fp8                         |  70 | 55.0k     | about 61k | speed wide8 10 $some precision.products=fp8
2    | wide8 bf16, 8 lanes               |  45 | 43.1k     | about 47k | speed wide8 10 $some train.lanes=8
2    | torch                             |  85 |           |           | torch
2    | wide8 bf16, documents             |  55 | 43.5k     | about 47k | speed wide8 10 train.activation_checkpointing=selective
2    | wide8 bf16, free                  |  55 | 45.4k     | about 49k | speed wide8 10 $some train.deterministic=false
2    | killed rank                       |  40 |           |           | killed
2    | killed rank: resumed              |  30 |           |           | world hosts 2 shard.strategy=full_shard
2    | 7B bf16                           | 110 |           | about 12k | speed 7B 6 $some
2 or | 7B bf16, moments on the host      | 110 | about 7k  | about 7k  | speed 7B 6 $small shard.offload=moments
2    | ncu                               |  60 |           |           | ncu
2    | test kernels: racecheck           |  60 |           |           | racecheck
2 x  | 1.5B bf16                         |  60 | about 42k | about 45k | speed 1.5B 10 $some
2 x  | 7B fp8                            | 110 |           | about 15k | speed 7B 6 $some precision.products=fp8
2 x  | 8B bf16, bf16 moments             | 110 |           | about 7k  | speed 8B 6 $small
"

if [[ $# != 3 || ! -f $1 || ! $2 =~ ^(first|second|plan)$ || ! $3 =~ ^[0-9]+(\.[0-9]+)?$ || ($2 != plan && $3 == *.*) ]]; then
  sed -n '2,/^# shellcheck/{/^# shellcheck/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
bundle=$(realpath "$1") plan=$2
carried=$(dirname "$bundle") dry=${LEASE_DRY-}
work=$(mktemp -d "${TMPDIR:-/tmp}/gpu-lease.XXXXXX") || exit 2
mkdir -p "$work"/{logs,runs,jobs,note/failed,note/tuning}
: >"$work/rows.tsv"
if [[ $plan == plan ]]; then out=$work budget=600; else out=${OUT:-$PWD/gpu-results} budget=$((10#$3)); fi
mkdir -p "$out" || exit 2
ends=$budget # when rows must end; retries have less

# ---- results: written the moment they are known

say() {
  local line
  printf -v line '%4d s  %s' "$SECONDS" "$*"
  printf '%s\n' "$line"
  printf '%s\n' "$line" >>"$out/result.txt"
  sync "$out/result.txt" 2>/dev/null || true
}
note() { # note NAME ok|near|FAILED|unreached|skipped|TOKENS_PER_S TEXT...
  local text="${*:3}"
  text=${text//[$'\n\t']/ }
  printf '%s\t%s\t%s\n' "$1" "$2" "${text:0:400}" >>"$work/rows.tsv"
  say "$(printf '%-32s %-9s %s' "$1" "$2" "${text:0:400}")"
}
keep() { # keep NAME LOG: a whole log, cut in the middle, into the one file that comes back
  [[ -s $2 ]] || return 0
  local half=250000 size piece=$work/note/keep.$BASHPID
  size=$(stat -c %s "$2")
  (($(stat -c %s "$out/log.txt" 2>/dev/null || echo 0) < 9000000)) || half=20000
  {
    printf '\n===== %s (%d s, %d bytes)\n' "$1" "$SECONDS" "$size"
    if ((size <= 2 * half)); then cat "$2"; else head -c "$half" "$2" && printf '\n... cut ...\n' && tail -c "$half" "$2"; fi
  } >"$piece"
  flock -w 10 "$work/note" cat "$piece" >>"$out/log.txt" # rows that run at once write one after another
  sync "$out/log.txt" 2>/dev/null
}
gather() { # what is small of every run, in one archive
  local limit file
  for limit in 2000k 300k 60k; do
    (cd "$work" && find jobs logs runs rows.tsv -type f ! -path '*/checkpoints/*' ! -name secret -size "-$limit" -print0 |
      tar --null -T - -czf "$out/.kept" 2>/dev/null)
    (($(stat -c %s "$out/.kept" 2>/dev/null || echo 0) > 15000000)) || break
  done
  mv -f "$out/.kept" "$out/kept.tar.gz" 2>/dev/null
  for file in "$work"/runs/*/metrics.jsonl; do
    sed "s/^{/{\"run\":\"$(basename "${file%/*}")\",/" "$file" | tail -n 200
  done >"$work/note/metrics"
  [[ ! -s $work/note/metrics ]] || cp "$work/note/metrics" "$out/metrics.jsonl"
  sync "$out" 2>/dev/null
}

# ---- processes

members() { # members FAMILY: the processes of a session, which setsid began; mpirun gives ranks groups of their own
  local file line
  for file in /proc/[0-9]*/stat; do
    { read -r line <"$file"; } 2>/dev/null || continue
    # shellcheck disable=SC2086 # pid (name) state parent group session
    set -- "$1" ${line##*) }
    [[ $5 != "$1" || $2 == Z ]] || { file=${file#/proc/} && echo "${file%/stat}"; }
  done
}
end_family() {
  local i
  for i in 0 0.1 0.1; do # what was started meanwhile
    sleep "$i"
    # shellcheck disable=SC2046
    kill -KILL $(members "$1") 2>/dev/null || break
  done
}
where_it_hangs() { # where_it_hangs FAMILY LOG: before it is killed; twice at most with what takes time
  ((budget - SECONDS > 25)) || return 0
  local pid task deep=yes
  mkdir "$work/note/hang.1" 2>/dev/null || mkdir "$work/note/hang.2" 2>/dev/null || deep=no
  {
    printf '\n----- killed at its limit; where it was:\n'
    for pid in $(members "$1" | head -n 12); do
      printf '%s %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | cut -c1-150)"
      for task in /proc/"$pid"/task/*; do
        printf '  %s %s %s\n' "$(cat "$task/comm")" "$(cat "$task/wchan")" "$(head -n 1 "$task/stack")"
      done 2>/dev/null | sort | uniq -c | head -n 20
      if [[ $deep == yes && $(cat "/proc/$pid/comm" 2>/dev/null) == @(holdfast-train|gpu_*|ld-linux*) ]]; then
        deep=no
        timeout -k 2 6 nvidia-smi
        timeout -k 2 15 cuda-gdb -q -batch -p "$pid" -ex 'info cuda kernels' -ex 'thread apply all bt 14'
      fi
    done
    dmesg 2>/dev/null | tail -n 15
  } >>"$2" 2>&1 </dev/null
}
# bounded LOG COMMAND...: its output to LOG. It ends itself, or is killed after $limit seconds with all that it started, or as
# soon as $until is true. Exit code: its own, 0 when $until said so, 124 killed at the limit, 125 not even SIGKILL ended it.
bounded() {
  local log=$1 code=124 end=$((SECONDS + limit)) i
  shift
  setsid "$@" >"$log" 2>&1 </dev/null &
  family=$!
  : >"$work/note/family.$family"
  { # the shell would say of each how it ended
    while kill -0 "$family"; do
      if [[ -n ${until-} ]] && $until; then code=0 && break; fi
      ((SECONDS < end)) || break
      sleep 0.1
    done
    if kill -0 "$family"; then
      ((code == 0)) || where_it_hangs "$family" "$log"
      end_family "$family"
      for ((i = 0; i < 100; ++i)); do
        kill -0 "$family" || break
        sleep 0.1
      done
      if kill -0 "$family"; then disown "$family" && code=125; else wait "$family"; fi
    else
      wait "$family"
      code=$?
      end_family "$family" # what it may have left
    fi
  } 2>/dev/null
  rm -f "$work/note/family.$family"
  return "$code"
}
time_for() { # time_for NAME SECONDS: sets `limit` to what there is of them; a row, and false, if that is nothing
  wanted=$2 limit=$2
  ((limit <= ends - SECONDS - 4)) || limit=$((ends - SECONDS - 4))
  ((limit >= 8 || limit == wanted)) && return 0
  note "$1" unreached "no time is left"
  return 1
}
last_words() { # of a log: the line that says most
  local log line
  log=$(sed '/^----- killed at its limit/,$d' "$1" 2>/dev/null | tr -d '\0')
  log=$(grep -avE '^ *$|^\[[ =-]|NCCL INFO' <<<"$log") # nor lines of gtest
  line=$(grep -aE 'rror|terminate|what\(\)|CUDA|NCCL WARN|refuse|not fit|exception' <<<"$log" | tail -n 1)
  cut -c1-220 <<<"${line:-${log##*$'\n'}}"
}
failed() { # failed CODE LOG [TEXT]: the row `name` has not ended as it should
  local status=FAILED how="exit $1"
  case $1 in
    124)
      how="killed at its limit of $limit s"
      # What had less time than it wants has not failed.
      ((limit >= wanted)) || { status=unreached && how="no time was left: ended after $limit of $wanted s"; }
      ;;
    125) how="does not even end by SIGKILL" ;;
  esac
  note "$name" "$status" "$how, ${3:+$3, }$(last_words "$2")"
}
started=()
together() { # waits for the rows that run at once
  ((${#started[@]} == 0)) || wait "${started[@]}"
  started=()
}
count() { awk -F '\t' -v want="$1" '$2 ~ want {++n} END {print n + 0}' "$work/rows.tsv"; }
finish() { # finish [CODE]: without it, what the rows say
  trap - EXIT INT TERM HUP
  local pid file code=${1-} good missed verdict
  [[ -z ${watching-} ]] || kill "$watching" 2>/dev/null
  for pid in $(jobs -p); do kill "$pid" 2>/dev/null; done
  for pid in "$work"/note/family.*; do end_family "${pid##*.}"; done
  gather
  { printf '\n===== at the end\n' && timeout -k 2 8 nvidia-smi && dmesg | tail -n 40; } >>"$out/facts.txt" 2>&1
  good=$(count '^(ok|[0-9]+)$') missed=$(count '^(near|FAILED|unreached)$')
  [[ -n $code ]] || code=$((good == 0 || missed > 0))
  awk -F '\t' '$2 ~ /^(near|FAILED|unreached)$/ {print "not good: " $1 ": " $2}' "$work/rows.tsv" | tee -a "$out/result.txt"
  case $code in
    0) verdict=good ;;
    1) verdict="not good" && ((good > 0)) || verdict="not good, nothing was tested" ;;
    3) verdict="libraries are missing, nothing was tested" ;;
    77) verdict="no GPU, nothing was tested" ;;
    *) verdict="broken off ($code)" ;;
  esac
  say "VERDICT $verdict: $good good, $(count '^near$') near, $(count '^FAILED$') failed, $(count '^unreached$') not reached," \
    "$(count '^skipped$') skipped"
  for file in "$out"/*; do
    (($(stat -c %s "$file") < 16000000)) || { tail -c 15000000 "$file" >"$work/cut" && mv "$work/cut" "$file"; }
  done
  sync
  rm -rf "$work" 2>/dev/null
  exit "$code"
}
trap 'finish 130' INT TERM HUP
trap 'finish 129' EXIT

# ---- unpack, libraries, environment

case $bundle in
  *.xz) command -v xz >/dev/null && tar -xJf "$bundle" -C "$work" ||
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$bundle" "$work" 2>/dev/null ;;
  *) tar -xzf "$bundle" -C "$work" ;;
esac || { say "the bundle cannot be unpacked (neither xz nor python3?)" && finish 3; }
root=$work/holdfast libexec=$work/holdfast/libexec
[[ $plan == plan ]] || say "unpacked $(basename "$bundle"), commit $(cut -c1-12 "$root/share/holdfast/bundle" 2>/dev/null)"

objects_of() { # what our programs load with these folders
  local object
  for object in "$root"/tests/gpu_{kernels,products,attention,bench} "$root/bin/holdfast-train"; do
    timeout -k 2 10 env LD_LIBRARY_PATH="$1" LD_TRACE_LOADED_OBJECTS=1 "$object" 2>/dev/null
  done
}
library_folders() { # all that there may be, in the order in which they are asked
  local site folder place major
  major=$(objects_of "$root/lib" | sed -nE 's/.*libcublasLt\.so\.([0-9]+) .*/\1/p' | head -n 1)
  mapfile -t sites < <({
    timeout 15 python3 -c 'import site, sys; print(*sys.path, *site.getsitepackages(), site.getusersitepackages(), sep="\n")'
    for place in "${VIRTUAL_ENV:-/nowhere}" "${CONDA_PREFIX:-/nowhere}" /opt/*/.venv /opt/*/venv /opt/* /usr /usr/local; do
      printf '%s\n' "$place"/lib/python3*/{site,dist}-packages
    done
  } 2>/dev/null | awk 'NF && !seen[$0]++')
  tr ':' '\n' <<<"${HOLDFAST_CUDA_LIBS-}"
  # Packages of the CUDA of this build come before a toolkit: PyTorch's are complete. Those of another CUDA come last.
  for site in ${sites[@]+"${sites[@]}"}; do
    [[ -z $(compgen -G "$site/nvidia/*/lib/libcublasLt.so.${major:-none}") ]] || printf '%s\n' "$site"/nvidia/*/lib
  done
  for place in "${CUDA_HOME:-/usr/local/cuda}" /usr/local/cuda /usr/local/cuda-*; do
    printf '%s\n' "$place/lib64" "$place/targets/x86_64-linux/lib" "$place/lib"
  done
  for site in ${sites[@]+"${sites[@]}"}; do printf '%s\n' "$site"/nvidia/*/lib; done
}
libs=$root/lib
while read -r folder; do
  folder=$(realpath -e "${folder:-/nowhere}" 2>/dev/null) || continue
  [[ ":$libs:" != *":$folder:"* ]] || continue
  found=("$folder"/lib{cudart,cublas,cublasLt,cudnn,nccl,nvrtc,nvJitLink}*.so*)
  ((${#found[@]} == 0)) || libs+=:$folder
done < <([[ $plan == plan ]] || library_folders)
libs+=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
pmix=$root/lib/x86_64-linux-gnu/pmix2
# Our programs alone are told; PyTorch keeps its environment. Tools put something of theirs into a program: they get the
# program itself, not the one in bin/ or tests/ that starts it.
tool=(env LD_LIBRARY_PATH="$libs" OPAL_PREFIX="$root" PMIX_PREFIX="$pmix" PMIX_PKGLIBDIR="$pmix/lib/pmix"
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
ours=("${tool[@]}" OMP_WAIT_POLICY=passive PATH="$root/tests:$PATH")
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
profiler=$(command -v ncu || echo /usr/local/cuda/bin/ncu)
memcheck=("$sanitizer" --tool memcheck --error-exitcode 9 --print-limit 30)

facts() {
  local command
  while read -r command; do
    [[ -n $command ]] || continue
    printf '\n===== %s\n' "$command"
    timeout -k 2 25 bash -c "$command" 2>&1 </dev/null
  done <<END
nvidia-smi; nvidia-smi -q; nvidia-smi topo -m
uname -a; cat /etc/os-release /proc/driver/nvidia/version; ldd --version
lscpu; free -g; df -h $work /dev/shm /; cat /sys/kernel/mm/transparent_hugepage/enabled /proc/self/limits
ls -l /dev/nvidia* /usr/local; ldconfig -p
type nvcc ncu compute-sanitizer cuda-gdb python3 xz setsid flock; nvcc --version; ncu --version
for f in ${libs//:/ }; do ls -l \$f; done
python3 -c 'import torch; print(torch.__version__, torch.backends.cudnn.version(), torch.cuda.nccl.version())'
dmesg | tail -n 150
END
}
probe() { # is there anything to run on?
  local code lacking name=probe log=$work/logs/probe.log
  say "libraries: ${libs//:/ }"
  mapfile -t lacking < <(objects_of "$libs" | awk '/=> not found/ {print $1}' | sort -u)
  ((${#lacking[@]} == 0)) || say "not found: ${lacking[*]}. Name their folders in HOLDFAST_CUDA_LIBS?"
  [[ -z $dry ]] || return 0
  limit=30 wanted=30
  bounded "$log" "${ours[@]}" "$root/tests/gpu_kernels" --gtest_filter=-'*'
  code=$?
  keep probe "$log"
  ((code != 0)) || return 0
  ((code != 77)) || { say "$(last_words "$log")" && finish 77; }
  failed "$code" "$log"
  finish $((code == 127 || ${#lacking[@]} > 0 ? 3 : 1))
}
card='' free=''
if [[ $plan == plan ]]; then
  free=$(awk "BEGIN {printf \"%.0f\", $3 * 1073741824}") host=137438953472
else
  facts >"$out/facts.txt" 2>&1 &
  probe
  IFS=, read -r card free < <(timeout -k 2 10 nvidia-smi --query-gpu=name,memory.free --format=csv,noheader,nounits 2>/dev/null)
  free=${free// /}
  say "card: ${card:-not known}, ${free:-?} MiB free"
  if [[ $free =~ ^[0-9]+$ ]]; then free=$((free * 1048576)); else free=''; fi
  host=$(awk '/^MemTotal/ {printf "%.0f", $2 * 1024}' /proc/meminfo)
  if [[ -z $dry ]] && command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,memory.used,utilization.gpu \
      --format=csv,noheader -l 1 >"$work/logs/smi.csv" 2>&1 </dev/null &
    watching=$!
  fi
fi

# ---- jobs

device=cuda cores=$(nproc) few=2
[[ -z $dry ]] || device=cpu cores=1 few=1
model() { # model NAME VOCABULARY WIDTH LAYERS HEADS KV_HEADS FFN SEQUENCE
  local keys=(name vocabulary width layers heads kv_heads ffn max_sequence) i=0 value
  for value; do echo "model.${keys[i++]} = $value"; done | sed '1s/= \(.*\)/= "\1"/' >"$work/jobs/$1.model.toml"
}
job() { # job NAME MODEL TOKENS SEQUENCE GLOBAL_BATCH MICRO_BATCH LANES STEPS EVERY
  cat >"$work/jobs/$1.toml" <<END
model.file = "$2"
data.tokens = "$carried/$3.bin"
train = {device = "$device", sequence = $4, global_batch = $5, micro_batch = $6, lanes = $7, steps = $8}
precision.parameters = "bf16"
shard.strategy = "no_shard"
optim.warmup_steps = 5
checkpoint = {every = $9, local = "none"}
END
}
large() { # large NAME MODEL SEQUENCE GLOBAL_BATCH MICRO_BATCH: nothing is saved
  [[ -z $dry ]] || set -- "$1" "$work/jobs/tiny.model.toml" 64 8 1
  job "$1" "$2" zipf "$3" "$4" "$5" 1 1000 0
}
models=$root/share/holdfast/configs/models
if [[ -z $dry ]]; then model small 1024 256 4 4 2 512 256; else model small 1024 64 4 4 2 128 32; fi
job small "$work/jobs/small.model.toml" text "$([[ -z $dry ]] && echo 256 || echo 32)" 8 1 4 20 10
model tiny 32000 64 2 4 4 176 64
for layers in 8 4; do
  model wide$layers 32000 4096 $layers 32 32 11008 4096
  large wide$layers "$work/jobs/wide$layers.model.toml" 4096 8 1
done
large 124M "$models/llama-124m.toml" 1024 32 16
large 1.5B "$models/llama-1.5b.toml" 4096 4 2
large 7B "$models/llama2-7b.toml" 4096 8 1
large 8B "$models/llama3-8b.toml" 8192 4 1
printf '%s\n' '[cluster]' 'name = "one-gpu"' 'gpu = "h100"' 'gpus_per_node = 1' 'control_interface = "lo"' \
  "gpu_memory_bytes = ${free:-0}" "node_memory_bytes = $host" '[[unit]]' 'name = "one"' 'nodes = "here"' \
  '[[gpu]]' 'gpu = 0' 'nic = ""' 'netdev = ""' 'numa = 0' 'rail = 0' >"$work/jobs/cluster.toml"

# ---- parts of rows

variant=() # settings without which the trainer does not run here, if it came to that
extra=()   # environment of the next runs
settings() { sets=() && for setting; do sets+=(--set "$setting"); done; }
train() { # train RUN RANKS JOB [SETTING...]: within $limit, until $until, which sees the caller's variables
  local at=$1 toml=$work/jobs/$3.toml start=() sets setting
  (($2 == 1)) || start=("$root/tests/mpirun" --mca plm isolated --oversubscribe --bind-to none -n "$2")
  shift 3
  settings ${variant[@]+"${variant[@]}"} "$@"
  mkdir -p "$work/runs/$at"
  bounded "$work/logs/$at.log" "${ours[@]}" HOLDFAST_SHARE_GPU=1 OMP_NUM_THREADS="${threads:-$few}" ${extra[@]+"${extra[@]}"} \
    ${start[@]+"${start[@]}"} "$root/bin/holdfast-train" "$toml" --run-dir "$work/runs/$at" ${sets[@]+"${sets[@]}"}
}
number() { sed -nE "s/.*\"$2\":([-+0-9.e]+).*/\1/p" "$work/runs/$1/metrics.jsonl" 2>/dev/null; } # number RUN KEY: of every step
steps_of() { number "$1" step | wc -l; }
digest_of() { sed -nE 's/.*"state_digest": *"([0-9a-f]+)".*/\1/p' "$work/runs/$1/result.json" 2>/dev/null; }
gap() { # gap RUN OTHER: worst difference of two runs' losses
  paste <(number "$1" loss) <(number "$2" loss) |
    awk 'NF == 2 {d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d; ++n} END {print n ? worst + 0 : "none"}'
}
near() { [[ $1 != none ]] && awk "BEGIN {exit !($1 <= 2e-3)}"; }
run_of() { local text=${1//[^A-Za-z0-9.]/-} && echo "${text//--/-}"; }
same_bits() { # same_bits CODE BASE [GAP_IS_ALLOWED]: has the run of this row the state of BASE?
  local dir mine base worst
  dir=$(run_of "$name") mine=$(digest_of "$(run_of "$name")") base=$(digest_of "$2")
  keep "$name" "$work/logs/$dir.log"
  if [[ -z $mine ]]; then
    failed "$1" "$work/logs/$dir.log" "step $(steps_of "$dir")"
  elif [[ $mine == "$base" ]]; then
    note "$name" ok "the bits of $2: $mine"
  else
    worst=$(gap "$dir" "$2")
    note "$name" "$([[ -n ${3-} ]] && near "$worst" && echo near || echo FAILED)" \
      "other bits: $mine, $2 has $base; largest gap of a loss $worst"
  fi
}
# from BASE: begins a run with the algorithms that BASE has chosen
from() {
  mkdir -p "$work/runs/$(run_of "$name")"
  cp "$work/runs/$1/tuning.json" "$work/runs/$(run_of "$name")/" 2>/dev/null
  [[ -n $(digest_of "$1") ]] || { note "$name" unreached "there is no run to compare with: $1" && return 1; }
}

gtest() { # gtest PROGRAM [FILTER [COMMAND...]]: tests that failed go to note/failed, in the order in which they ran
  local program=$1 filter=${2:-'*'} code log bad ran skipped
  log=$work/logs/$(run_of "$name").log
  shift $(($# > 1 ? 2 : 1))
  [[ -x $root/tests/$program ]] || { note "$name" skipped "the bundle has no $program" && return 0; }
  if (($# > 0)); then bounded "$log" "${tool[@]}" "$@" "$libexec/$program" --gtest_color=no --gtest_filter="$filter"; else
    bounded "$log" "${ours[@]}" ${extra[@]+"${extra[@]}"} "$root/tests/$program" --gtest_color=no --gtest_filter="$filter"
  fi
  code=$?
  keep "$name" "$log"
  ran=$(grep -ac '^\[       OK \]' "$log") skipped=$(grep -acE '^\[  SKIPPED \] .*\([0-9]+ ms\)' "$log")
  # A crash or a limit leaves the test that ran.
  bad=$(awk -v code="$code" '/^\[ RUN      \]/ {run = $4} /^\[       OK \]|^\[  SKIPPED \]/ {run = ""}
    /^\[  FAILED  \] .* ms\)$/ {print run; run = ""} END {if (code && run) print run}' "$log")
  if ((code == 0 && ran > 0)); then
    note "$name" ok "$ran tests$( ((skipped == 0)) || echo ", $skipped skipped")"
  elif ((code == 0 || code == 77)); then
    note "$name" FAILED "nothing was tested, $skipped skipped: $(grep -am1 -A1 'Skipped$' "$log" | tail -n 1)"
  else
    failed "$code" "$log" "$ran good, $(grep -c . <<<"$bad") failed: $(head -n 5 <<<"$bad" | paste -sd ' ')"
    [[ $name == *:* ]] || echo "$bad" >"$work/note/failed/$program"
  fi
}
# Runs once more what failed: the first one alone, since all tests after a fault of the GPU fail; the others without it.
retries() {
  local list program name base filter few ends=$((SECONDS + wanted))
  ((ends <= budget)) || ends=$budget
  for list in "$work"/note/failed/*; do
    program=${list##*/} base="test ${list##*gpu_}" few=$(head -n 12 "$list" | paste -sd:)
    name="$base: the first alone"
    time_for "$name" 20 && gtest "$program" "$(head -n 1 "$list")"
    if [[ -x $sanitizer ]]; then
      name="$base: memcheck of 12"
      time_for "$name" 40 && gtest "$program" "$few" "${memcheck[@]}"
    fi
    filter=$(tail -n +2 "$list" | paste -sd:)
    name="$base: without the first"
    [[ -z $filter ]] || { time_for "$name" 20 && gtest "$program" "$filter"; }
    name="$base: blocking launches"
    extra=(CUDA_LAUNCH_BLOCKING=1)
    time_for "$name" 20 && gtest "$program" "$few"
    extra=()
  done
}

# ---- rows: each is called with its words in the table, `name` and `limit`

reference() { # beside everything else, until parity() waits for it
  (
    threads=$((2 * few))
    train cpu 1 small train.device=cpu
    keep "$name" "$work/logs/cpu.log"
  ) &
  on_cpu=$!
}
parity() {
  local worst
  { while kill -0 "$on_cpu" && ((SECONDS < ends - 4)); do sleep 0.2; done; } 2>/dev/null
  worst=$(gap smoke cpu)
  if [[ $worst == none ]] || (($(steps_of cpu) < 20)); then
    note "$name" unreached "a run has no 20 steps, $(steps_of cpu) on the CPU"
  else
    note "$name" "$(near "$worst" && echo ok || echo FAILED)" "largest gap of a loss in 20 steps: $worst, 2e-3 is allowed"
  fi
}

trainer_runs=no on_cpu=none
base() { # base SETTING...: a run that others are compared with
  local dir log code
  dir=$(run_of "$name") log=$work/logs/$(run_of "$name").log
  train "$dir" 1 small "$@"
  code=$?
  keep "$name" "$log"
  [[ -n $(digest_of "$dir") ]] || { failed "$code" "$log" "step $(steps_of "$dir")" && return 1; }
  note "$name" ok "$(steps_of "$dir") steps, loss $(number "$dir" loss | sed -n '1p;$p' | paste -sd ' ')," \
    "state $(digest_of "$dir"); $(sed -nE 's/.*(device: .*)/\1/p' "$log" | head -n 1)"
}
smoke() { # where it fails: without graphs, with launches one by one, under memcheck; later rows run in the same way
  base && trainer_runs=yes && return 0
  local name good='' code log=$work/logs/smoke-memcheck.log
  name="smoke: without graphs"
  time_for "$name" 25 && base trace.count=20 && good=$name && variant=(trace.count=20)
  name="smoke: blocking launches"
  extra=(CUDA_LAUNCH_BLOCKING=1)
  if time_for "$name" 25 && base && [[ -z $good ]]; then good=$name && ours+=(CUDA_LAUNCH_BLOCKING=1); fi
  extra=()
  name="smoke: memcheck of 2 steps"
  if [[ -z $dry && -x $sanitizer ]] && time_for "$name" 45; then
    mkdir -p "$work/runs/smoke-memcheck"
    bounded "$log" "${tool[@]}" OMP_NUM_THREADS=4 "${memcheck[@]}" "$libexec/holdfast-train" "$work/jobs/small.toml" \
      --run-dir "$work/runs/smoke-memcheck" --set train.steps=2
    code=$?
    keep "$name" "$log"
    if ((code == 0)); then note "$name" ok "no error"; else failed "$code" "$log" "$(grep -am1 '=========.* at ' "$log")"; fi
  fi
  [[ -n $good ]] || return 0
  say "later rows run like $good"
  trainer_runs=yes
  rm -rf "$work/runs/smoke"
  cp -r "$work/runs/$(run_of "$good")" "$work/runs/smoke"
}
again() { # again BASE SETTING...: no bit may depend on what else runs on the card
  local base=$1
  shift
  from "$base" || return 0
  train "$(run_of "$name")" 1 small "$@"
  same_bits $? "$base"
}
resumed() { # resumed BASE SETTING...: as if it had been killed after step 10
  local dir
  dir=$work/runs/$(run_of "$name")
  [[ ! -d $work/runs/$1 ]] || cp -r "$work/runs/$1" "$dir"
  rm -rf "$dir"/{checkpoints/step-00000020,durable.json,result.json}
  again "$@"
}

bench() { # bench [SHAPE...]
  local code log
  log=$work/logs/$(run_of "$name").log
  bounded "$log" "${ours[@]}" "$root/tests/gpu_bench" "$@"
  code=$?
  keep "$name" "$log"
  sed -nE "s/^RESULT \{/{\"name\":\"$name\",/p" "$log" >>"$out/numbers.jsonl"
  ((code == 0)) || { failed "$code" "$log" && return 0; }
  note "$name" ok "$(head -n 1 "$log")"
  [[ $name != "bench 7B" ]] || grep -v '^RESULT' "$log" | tail -n +2 | tee -a "$out/result.txt"
}
fits() { # fits JOB SETTING...: asks the planner; the row says so where it does not fit
  local job=$1 sets setting code log=$work/note/plan.$BASHPID
  shift
  settings "$@"
  [[ -n $free && -z $dry ]] || return 0
  echo "cluster = {file = \"$work/jobs/cluster.toml\", nodes = 1, ranks_per_node = 1}" | cat "$work/jobs/$job.toml" - >"$log.toml"
  "${ours[@]}" "$root/bin/holdfast" plan "$log.toml" ${sets[@]+"${sets[@]}"} >"$log" 2>&1
  code=$?
  case $code in
    0) [[ $plan != plan ]] || say "$(printf '%-32s %s; tokens/s %s on an H100, %s on an H200' "$name" \
      "$(grep -oE 'together about [^,]*' "$log" | head -n 1)" "${h100:--}" "${h200:--}")" ;;
    3) note "$name" skipped "does not fit: $(head -n 1 "$log" | sed 's/^holdfast: //; s/ (.*//')" ;;
    *) failed "$code" "$log" ;;
  esac
  return "$code"
}
enough() { # until: as many steps as are wanted, and the trace
  local now
  now=$(steps_of "$dir")
  ((now > 0)) || return 1
  first=${first:-$((SECONDS - began))}
  ((now >= steps)) && { ((now >= steps + 6)) || [[ -n $(compgen -G "$work/runs/$dir/trace/rank-*.json") ]]; }
}
speed() { # speed JOB STEPS SETTING...: tokens/s from the third step on; the last but one is traced
  local job=$1 steps=$2 dir log trace code value planned used began=$SECONDS first='' traced=() choices
  shift 2
  fits "$job" "$@" || return 0
  [[ $plan != plan ]] || return 0
  dir=$(run_of "$name") choices=$work/note/tuning/$job
  log=$work/logs/$dir.log
  mkdir -p "$work/runs/$dir"
  # Where algorithms may be free, other ones are chosen.
  [[ " $* " == *deterministic=false* ]] || cp "$choices" "$work/runs/$dir/tuning.json" 2>/dev/null
  ((${#variant[@]} > 0)) || traced=(trace.first=$((steps - 2)) trace.count=1)
  until=enough threads=$cores train "$dir" 1 "$job" ${traced[@]+"${traced[@]}"} "$@"
  code=$?
  keep "$name" "$log"
  [[ " $* " == *deterministic=false* ]] || cp "$work/runs/$dir/tuning.json" "$choices" 2>/dev/null
  (($(steps_of "$dir") >= steps - 2)) || { failed "$code" "$log" "after $(steps_of "$dir") of $steps steps" && return 0; }
  value=$(number "$dir" tokens_per_s | sed -n "3,$((steps - 2))p" | sort -g |
    awk '{v[NR] = $1} END {printf "%.0f", v[int((NR + 1) / 2)]}') # the median
  planned=$(sed -nE 's/.*each rank plans ([0-9]+) bytes of memory.*/\1/p' "$log" | head -n 1)
  used=$(number "$dir" device_peak_bytes | tail -n 1)
  note "$name" "$value" "tokens/s, expected ${expected:-nothing}; first step after ${first:-?} s;" \
    "planned $((planned / 1000000)) MB, used $((used / 1000000)) MB; mfu $(number "$dir" mfu | tail -n 1)"
  sed -n '/traced steps on rank/,/hidden behind/p' "$log" | tail -n +2 | sed 's/^/            /' | tee -a "$out/result.txt"
  for trace in "$work/runs/$dir"/trace/rank-*.json; do
    [[ -e $out/trace.json || $job != wide* ]] || (($(stat -c %s "$trace") > 15000000)) || cp "$trace" "$out/trace.json"
  done
}

# Several ranks on the one card (HOLDFAST_SHARE_GPU). `ipc`: as on one node, each rank reads the others' memory. With
# HOLDFAST_NODE_RANKS they are on nodes of their own, and bytes go over NCCL. `hosts`: each is also a host of its own to NCCL,
# which uses sockets; `pairs`: two ranks are a node. `multi`: one host, with an NCCL of 2.30 or later, which takes several ranks
# on one card.
over() {
  [[ $1 != ipc && -z $dry ]] || return 0
  extra=(HOLDFAST_NODE_RANKS=1 NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MAX_CTAS=4 NCCL_DEBUG=INFO
    "NCCL_DEBUG_SUBSYS=INIT,ENV,NET,P2P")
  [[ $1 != pairs ]] || extra+=(HOLDFAST_NODE_RANKS=2)
  [[ $1 == multi ]] || return 0
  [[ -s $carried/libnccl.so.2.xz ]] || { note "$name" skipped "libnccl.so.2.xz is not beside the bundle" && return 1; }
  mkdir -p "$work/nccl"
  xz -dc "$carried/libnccl.so.2.xz" >"$work/nccl/libnccl.so.2" 2>/dev/null ||
    python3 -c 'import lzma, sys; sys.stdout.buffer.write(lzma.open(sys.argv[1]).read())' "$carried/libnccl.so.2.xz" \
      >"$work/nccl/libnccl.so.2"
  extra+=(NCCL_MULTI_RANK_GPU_ENABLE=1 LD_LIBRARY_PATH="$work/nccl:$libs")
}
world() { # world ipc|hosts|pairs|multi RANKS SETTING...
  local how=$1 ranks=$2
  shift 2
  from smoke || return 0
  if over "$how"; then
    train "$(run_of "$name")" "$ranks" small "$@"
    same_bits $? smoke near
  fi
  extra=()
}
kill_one() { # until: rank 1 is killed after step 12; the row goes on until the others have ended
  [[ -z $killed ]] && (($(steps_of killed-rank) >= 12)) || return 1
  local pid
  for pid in $(members "$family"); do
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) == holdfast-train ]] || continue
    ! grep -qzx 'OMPI_COMM_WORLD_RANK=1' "/proc/$pid/environ" 2>/dev/null || { kill -KILL "$pid" && killed=$SECONDS; }
  done
  return 1
}
killed() {
  local killed='' code log=$work/logs/killed-rank.log
  from smoke && over hosts || return 0
  echo "0.2 60" >"$work/runs/killed-rank/hold" # a step takes so long at least, so that it is caught in time
  until=kill_one train killed-rank 2 small shard.strategy=full_shard drill.allowed=true
  code=$?
  extra=()
  keep "$name" "$log"
  if [[ -z $killed ]]; then failed "$code" "$log" "nobody was killed"; elif ((code == 124 || code == 125)); then
    note "$name" FAILED "the others had not ended $((SECONDS - killed)) s later"
  else
    note "$name" ok "the others ended within $((SECONDS - killed)) s, exit $code"
    mkdir -p "$work/runs/killed-rank-resumed"
    cp -r "$work/runs/killed-rank/." "$work/runs/killed-rank-resumed/"
    rm -f "$work/runs/killed-rank-resumed/hold"
  fi
}

torch() {
  local code python log=$work/logs/torch.log
  for python in python3 "${VIRTUAL_ENV-}"/bin/python3 /opt/*/.venv/bin/python3 /opt/*/bin/python3; do
    timeout -k 2 10 "$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' 2>/dev/null && break
    python=''
  done
  [[ -n $python ]] || { note "$name" skipped "no PyTorch here" && return 0; }
  bounded "$log" env OMP_NUM_THREADS=4 "$python" "$root/tests/gpu_torch_rows.py" --seconds $((limit - 3)) ${dry:+--tiny}
  code=$?
  keep "$name" "$log"
  grep -a '^{' "$log" >>"$out/numbers.jsonl"
  if ((code == 0)); then note "$name" ok "$(grep -ac '^{' "$log") numbers"; else failed "$code" "$log"; fi
  sed -nE 's/^\{"name": "([^"]+)", (.*)\}$/            \1: \2/p' "$log" | tee -a "$out/result.txt"
}
ncu() { # a few launches of each of our kernels
  local code rows log=$work/logs/ncu.log
  [[ -x $profiler ]] || { note "$name" skipped "it is not installed" && return 0; }
  local names='adamw|add_losses|add_parts|amax|column_sums|convert|convert_start|cross_entropy|decode|digest|dropout|embed|embed_backward|norm'
  names+='|norm_backward|order|ordered_sum|quantize|rope|scales|squares|swiglu|swiglu_backward'
  local metrics=gpu__time_duration.sum,dram__bytes.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
  metrics+=,launch__registers_per_thread,sm__throughput.avg.pct_of_peak_sustained_elapsed
  metrics+=,sm__warps_active.avg.pct_of_peak_sustained_active
  metrics+=,smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio
  metrics+=,l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio
  bounded "$log" "${tool[@]}" "$profiler" --clock-control none --csv --page raw --target-processes all \
    --kernel-name-base function -k "regex:($names)_kernel" --launch-count 140 --metrics "$metrics" "$libexec/gpu_bench"
  code=$?
  keep "$name" "$log"
  grep -a '^"' "$log" | gzip >"$out/ncu.csv.gz"
  rows=$(grep -ac '^"' "$log")
  if ((rows > 5)); then note "$name" ok "$((rows - 2)) launches"; else failed "$code" "$log"; fi
}
racecheck() {
  [[ -x $sanitizer ]] || { note "$name" skipped "compute-sanitizer is not installed" && return 0; }
  gtest gpu_kernels '*' "$sanitizer" --tool racecheck --error-exitcode 9 --print-limit 30
}

# ---- the table

missed='' # names of the first call that failed or were not reached
if [[ $plan == second && -s $carried/first.txt ]]; then
  missed=$(awk 'sub(/^ *[0-9]+ s  /, "") && match($0, / +(near|FAILED|unreached) /) {print substr($0, 1, RSTART - 1)}' \
    "$carried/first.txt" | sed 's/:.*//' | sort -u)
  say "of the first call once more: $(paste -sd, <<<"${missed:-nothing}")"
fi
letter='' before=''
while IFS='|' read -r -u 3 calls name seconds h100 h200 what; do
  [[ -n $calls ]] || continue
  read -r name <<<"$name" # without the spaces around it
  read -r h100 <<<"$h100"
  read -r h200 <<<"$h200"
  read -r -a words <<<"$what"
  case $plan in
    plan) [[ ${words[0]} == speed ]] || continue ;;
    first) [[ $calls == *1* ]] || continue ;;
    second) [[ $calls == *2* ]] || grep -qxF "${name%%:*}" <<<"$missed" || continue ;;
  esac
  case ${words[0]} in gtest | retries | bench | ncu | racecheck) [[ -z $dry ]] || continue ;; esac
  case $card in *"H100 80GB HBM3") expected=$h100 ;; *H200*) expected=$h200 ;; *) expected='' ;; esac
  this=$(tr -d '12x ' <<<"${calls%or*}")
  if [[ -z $this || $this != "$letter" ]]; then
    together
    [[ $plan == plan ]] || gather
  fi
  letter=$this
  [[ $calls != *or* ]] || ! grep -qE "^$before"$'\t[0-9]+\t' "$work/rows.tsv" || continue
  before=$name
  if [[ $calls == *x* ]] && ((seconds > ends - SECONDS - 4)); then note "$name" skipped "it wants more time" && continue; fi
  if [[ $trainer_runs$plan == nofirst || $trainer_runs$plan == nosecond ]]; then
    case ${words[0]} in
      base | again | resumed | speed | world | killed | parity) note "$name" unreached "the trainer does not run" && continue ;;
    esac
  fi
  time_for "$name" "$((seconds))" || continue
  if [[ -n $letter ]]; then
    "${words[@]}" &
    started+=($!)
  else
    "${words[@]}"
  fi
done 3<<<"$table"
together
[[ $plan != plan ]] || { trap - EXIT && rm -rf "$work" && exit 0; }
finish
