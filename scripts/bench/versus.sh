#!/usr/bin/env bash
# The same power cut, three ways, on one minipod of 4 nodes, ROUNDS times each:
#   holdfast   2 active nodes and 2 spares
#   torchrun   --nnodes=2:3, elastic DDP (gloo) of about the same size, a checkpoint every 10 steps. PyTorch's process
#              groups wait 1800 s for a silent peer by default; here 30 s, so that there is something to measure
#   requeue    sbatch --requeue of a bare srun holdfast-train, nothing else (one round). SlurmdTimeout is 20 s here and
#              300 s by default: the difference is added for the second figure
# As root, with PyTorch as scripts/torch_env.sh finds or makes it: scripts/bench/versus.sh HOLDFAST TRAIN TOOL [ROUNDS=3]
# Ends with one line RESULT {json}: seconds from the power cut to the next new step, and ratios to Holdfast's.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=("$(realpath "$1")" "$(realpath "$2")" "$(realpath "$3")")
rounds=${4:-3}
# shellcheck source=scripts/torch_env.sh
source "$source/scripts/torch_env.sh"
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-bench.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
torch_throw_away=''
# shellcheck disable=SC2154 # pod and dir are of pod.sh
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir" ${torch_throw_away:+"$torch_throw_away"}' EXIT
trap 'exit 130' INT TERM HUP
torch_env
here_s=20 usual_s=300 # SlurmdTimeout

mini up --nodes 4 --slurmd-timeout $here_s
install_programs "${programs[@]}"
make_tokens
# The nodes see no other folder of this machine, and their user no home of another. Links, where the file system allows, as
# it is gigabytes.
share() { cp -al "$1" "$dir/shared/$2" 2>/dev/null || cp -r "$1" "$dir/shared/$2"; chmod -R a+rX "$dir/shared/$2"; }
base=$("$torch_python" -c 'import sys; print(sys.base_prefix)')
share "$("$torch_python" -c 'import site; print(site.getsitepackages()[0])')" torch
python='env PYTHONPATH=/shared/torch /usr/bin/python3'
if [[ $base != /usr ]]; then
  share "$base" python
  python='env PYTHONHOME=/shared/python PYTHONPATH=/shared/torch /shared/python/bin/python3'
fi
install -m 0644 "$source/scripts/bench/versus_torch.py" "$dir/shared/"

cut_at() { jq -s 'last.unix' "$dir/faults.jsonl"; }
minus() { jq -n "$1 - $2"; }
whole() { # JOB: it leaves the queue, and every node comes back
  mini exec scancel "$1" || true
  soon 120 job_gone "$1" || true
  local node
  for node in dgx001 dgx002 dgx003 dgx004; do
    [[ ! -e $dir/nodes/$node/killed ]] || mini revive-node "$node"
  done
  # SLURM has given up on a node by now; only root can tell it that the node is back.
  soon 120 idle_again
}
idle_again() {
  local node
  for node in $(mini exec sinfo -h -N -t down,drain -o %N); do mini exec --root scontrol update "nodename=$node" state=resume; done
  all_idle
}

holdfast_round() {
  local run=holdfast_$1 node
  job=$(submit "$run" --set train.steps=1000000)
  soon 120 step_reached "$run" 30
  node=$(placement "$run" | grep -vx "$(leader_of "$run")" | head -n 1)
  mini kill-node "$node"
  soon 120 training "$run" 2
  took=$(minus "$(events "$run" | jq -s 'map(select(.event == "first_step" and .attempt == 2))[0].unix')" "$(cut_at)")
}

lines() { if [[ -s $steps ]]; then wc -l <"$steps"; else echo 0; fi; }
have_lines() { (($(lines) >= $1)); }
# The first step of other processes than those before the cut: survivors finish theirs.
went_on() { jq -es --argjson pid "$pid" 'map(select(.pid != $pid)) | length > 0' "$steps" >/dev/null; }
torchrun_round() {
  local folder=/shared/home/torchrun_$1 meet
  steps=$home/torchrun_$1/steps.jsonl
  mkdir -p "$home/torchrun_$1" && chown 61000 "$home/torchrun_$1"
  cat >"$home/torchrun.sh" <<SCRIPT
#!/bin/bash
exec srun --no-kill --ntasks-per-node=1 env GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1 $python -m torch.distributed.run \\
  --nnodes=2:3 --nproc-per-node=2 --max-restarts=100 --rdzv-id=$1 --rdzv-backend=c10d --rdzv-endpoint=\$(hostname):29400 \\
  /shared/versus_torch.py --folder $folder
SCRIPT
  job=$(mini exec sbatch --parsable --no-kill -N3 --exclusive -o "$folder/job.log" /shared/home/torchrun.sh)
  soon 180 have_lines 30 || { tail -n 20 "$home/torchrun_$1/job.log"; exit 1; }
  meet=$(mini exec squeue -h -j "$job" -o %B)
  pid=$(tail -n 1 "$steps" | jq .pid)
  # A node that neither hosts the meeting point nor rank 0.
  mini kill-node "$(mini exec scontrol show hostnames "$(mini exec squeue -h -j "$job" -o %N)" | grep -vx "$meet" | tail -n 1)"
  if soon 300 went_on; then
    took=$(jq -s --argjson pid "$pid" --argjson cut "$(cut_at)" 'map(select(.pid != $pid and .unix > $cut))[0].unix - $cut' "$steps")
  else
    took=null
    tail -n 20 "$home/torchrun_$1/job.log"
  fi
}

requeued() { (($(tail -n 1 "$home/requeue/metrics.jsonl" | jq .attempt) > before)); }
requeue_round() {
  cp "$source/tests/fault/"{job,model}.toml "$home/"
  cat >"$home/requeue.sh" <<'SCRIPT'
#!/bin/bash
exec env OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive srun --mpi=pmix --ntasks-per-node=2 holdfast-train job.toml --set data.tokens=/shared/home/tokens.bin \
  --set run.dir=/shared/home/requeue --set train.steps=1000000
SCRIPT
  job=$(mini exec --chdir /shared/home sbatch --parsable --requeue -N2 --exclusive --open-mode=append -o /shared/home/requeue.log requeue.sh)
  soon 120 step_reached requeue 30
  local before node batch
  batch=$(mini exec squeue -h -j "$job" -o %B)
  node=$(mini exec scontrol show hostnames "$(mini exec squeue -h -j "$job" -o %N)" | grep -vx "$batch" | head -n 1)
  mini kill-node "$node"
  sleep 2 # what was under way
  before=$(jq -s 'last.attempt' "$home/requeue/metrics.jsonl")
  soon 600 requeued || { tail -n 20 "$home/requeue.log"; took=null; return; }
  took=$(jq -s --argjson before "$before" --argjson cut "$(cut_at)" 'map(select(.attempt > $before))[0].time | (.[0:19] + "Z" | fromdateiso8601) + ("0" + (.[19:-1] // "") | tonumber) - $cut' "$home/requeue/metrics.jsonl")
}

times() { # NAME ROUNDS: a JSON list
  local round
  for ((round = 1; round <= $2; ++round)); do
    soon 180 all_idle || mini exec sinfo -N >&2
    took=null
    "$1_round" "$round" >&2
    echo "${took:-null}"
    printf '%s %d of %d: %s s\n' "$1" "$round" "$2" "$took" >&2
    whole "$job" >&2
  done | jq -cs .
}
holdfast=$(times holdfast "$rounds")
torchrun=$(times torchrun "$rounds")
requeue=$(times requeue 1)

jq -cnr --argjson holdfast "$holdfast" --argjson torchrun "$torchrun" --argjson requeue "$requeue" --argjson here $here_s --argjson usual $usual_s '
  def median: map(select(. != null)) | sort | if length == 0 then null else .[length / 2 | floor] end;
  def ratio(a; b): if a == null or b == null then null else a / b * 10 | round / 10 end;
  ($holdfast | median) as $h | ($torchrun | median) as $t | ($requeue | median) as $r | (if $r == null then null else $r - $here + $usual end) as $rd
  | "RESULT " + ({holdfast_s: $holdfast, torchrun_s: $torchrun, torchrun_group_timeout_s: 30, requeue_s: $requeue, slurmd_timeout_s: $here,
      requeue_s_with_the_usual_timeout: $rd, torchrun_over_holdfast: ratio($t; $h), requeue_over_holdfast: ratio($r; $h), usual_requeue_over_holdfast: ratio($rd; $h)} | tostring)'
