#!/usr/bin/env bash
# One script, in one way of being started after the other, on a minipod of 4 nodes, 2 of which train (2 ranks each):
#   holdfast   `holdfast submit --command` of the script as it is; 2 spares; hang_outside_s = 5
#   client     the same with --client, and rank.warm = ["torch", "torch._dynamo"], which DDP imports
#   buffers    the same, and every step is kept in the memory of its node and of a partner
#   torchrun   --nnodes=2 on three nodes (the third waits), else as it comes: the process group gives up after 1800 s
#   tuned      the same at the best that was found: group 10 s, rendezvous last_call 1 s and keep-alive 1 s,
#              TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, monitor interval 0.1 s
#   nospare    tuned on two nodes, with none that waits. Where one waits and no node is lost, the three agents may take the two
#              places from each other again and again, and no step comes: this is torchrun's best for a rank
#   nvrx       NVIDIA's ft_launcher 0.4.1 on three nodes: heartbeats of 5 s, the same rendezvous and group
#   requeue    sbatch --requeue of a bare srun; SlurmdTimeout is 20 s here, and 300 s by default
# and each with one fault after the other, ROUNDS times:
#   node       a node that trains loses power, neither rank 0's nor the leader's
#   rank       SIGKILL for the last rank
#   stopped    SIGSTOP for the last rank
#   host       the node that leads, or hosts the rendezvous, loses power
# Timed from the fault to the first step that was never done before; `limit` seconds at most, then it has not survived.
# As root, with PyTorch as scripts/torch_env.sh finds or makes it (nvrx: and nvidia-resiliency-ext):
#   scripts/bench/versus.sh BUILD [ROUNDS=5]
# HOLDFAST_BENCH_LAUNCHERS, HOLDFAST_BENCH_FAULTS: which of them. Ends with one line RESULT {json}: all seconds, medians, and the ratio
# of each launcher's median to client's.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(realpath "$1") rounds=${2:-5}
read -r -a launchers <<<"${HOLDFAST_BENCH_LAUNCHERS:-holdfast client buffers torchrun tuned nospare nvrx requeue}"
read -r -a faults <<<"${HOLDFAST_BENCH_FAULTS:-node rank stopped host}"
# shellcheck source=scripts/torch_env.sh
source "$source/scripts/torch_env.sh"
set -- "$build/launcher/holdfast" "$build/src/train/holdfast-train" "$build/src/tools/cli/holdfast-tool"
pod_options=(--slurmd-timeout 20)
# shellcheck source=tests/support/torch_pod.sh
source "$source/tests/support/torch_pod.sh"
limit=120
install -m 0644 "$source/scripts/bench/versus_torch.py" "$home/"

steps_done() { if [[ -s $folder/steps.jsonl ]]; then tail -n 1 "$folder/steps.jsonl" | jq .step; else echo 0; fi; }
has_done() { (("$(steps_done)" >= $1)); }
rank_of_round() { # RANK: its process. An interpreter that waits for it has a rank below 0.
  local place=RANK
  case $launcher in
    holdfast | client | buffers) place=HOLDFAST_RANK ;;
    requeue) place=SLURM_PROCID ;;
  esac
  rank_process '^[^ ]*python' "VERSUS=$name" "$place=0*$1"
}

launch_holdfast() { # ARGUMENT...
  run=runs/$name
  job=$(mini exec --chdir /shared/home env "${shell[@]}" "VERSUS=$name" holdfast submit --command "python3 /shared/home/versus_torch.py --folder /shared/home/$name ${1-}" \
    -N 2 --spares 2 --set supervise.hang_outside_s=5 -J "$name" --parsable --set cluster.ranks_per_node=2 "${@:2}")
}
launch_client() { launch_holdfast --client --set 'rank.warm=["torch", "torch._dynamo"]'; }
launch_buffers() { launch_holdfast '--client --buffers' --set 'rank.warm=["torch", "torch._dynamo"]'; }
# shellcheck disable=SC2016 # for the job's shell
launch_sbatch() { # NODES NTASKS_PER_NODE COMMAND...
  run=''
  printf '%s\n' '#!/bin/bash' "export ${shell[*]} VERSUS=$name OMP_NUM_THREADS=1" 'HEAD=$(hostname); export HEAD' "exec srun --no-kill --ntasks-per-node=$2 ${*:3}" >"$home/$name.sh"
  job=$(mini exec --chdir /shared/home sbatch --parsable "--$([[ $launcher == requeue ]] && echo requeue || echo no-kill)" -N "$1" --exclusive --open-mode=append -o "/shared/home/$name/job.log" "$name.sh")
}
# shellcheck disable=SC2016 # for the job's shell
meeting='--nnodes=2 --nproc-per-node=2 --max-restarts=100 --rdzv-id=1 --rdzv-backend=c10d --rdzv-endpoint=$HEAD:29400'
script() { echo "/shared/home/versus_torch.py --folder /shared/home/$name"; }
tuning='--monitor-interval=0.1 --rdzv-conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3'
launch_torchrun() { launch_sbatch 3 1 "python3 -m torch.distributed.run $meeting $(script)"; }
launch_tuned() { # NODES=3
  launch_sbatch "${1:-3}" 1 "env TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 python3 -m torch.distributed.run $meeting $tuning $(script) --group-timeout-s 10"
}
launch_nospare() { launch_tuned 2; }
launch_nvrx() {
  launch_sbatch 3 1 "env TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 python3 -m nvidia_resiliency_ext.fault_tolerance.launcher $meeting $tuning" \
    "--ft-initial-rank-heartbeat-timeout=60 --ft-rank-heartbeat-timeout=5 --ft-workload-check-interval=0.5 $(script) --nvrx --group-timeout-s 10"
}
launch_requeue() { launch_sbatch 2 2 "python3 $(script)"; }

batch_host() { mini exec squeue -h -j "$job" -o %B; }
nodes_of_job() { mini exec scontrol show hostnames "$(mini exec squeue -h -j "$job" -o %N)"; }
node_of_rank() { # RANK
  local node
  node=$(tr '\0' '\n' <"/proc/$(rank_of_round "$1")/environ" | sed -n 's/^\(HOLDFAST_NODE\|SLURMD_NODENAME\)=//p')
  echo "${node%%$'\n'*}"
}
host_node() { if [[ $run ]]; then leader_of "$run"; else batch_host; fi; }
do_node() {
  local host
  host=$(host_node)
  broken=$(for r in 3 2; do node_of_rank $r; done | grep -vx "$host" | head -n 1 || true)
  [[ $broken ]] || broken=$(node_of_rank 0)
  mini kill-node "$broken"
}
do_rank() { kill -KILL "$(rank_of_round 3)"; }
do_stopped() { kill -STOP "$(rank_of_round 3)"; }
do_host() {
  broken=$(host_node)
  mini kill-node "$broken"
}

one_round() { # LAUNCHER FAULT ROUND: sets `took`, seconds or null
  launcher=$1 name=$1-$2-$3 folder=$home/$1-$2-$3 broken='' took=null
  soon 240 all_idle_again || mini exec sinfo -N >&2
  mkdir -p "$folder"
  chown 61000 "$folder"
  "launch_$1"
  # What is seen of a program from outside is learned first.
  soon 240 has_done "$([[ $2 == stopped ]] && echo 120 || echo 25)" || { echo "$name does not train" >&2; tail -n 20 "$folder/job.log" >&2; return; }
  # Interpreters for the next attempt begin to wait 20 s after those of this one have become its ranks.
  [[ $1 != client && $1 != buffers ]] || sleep 25
  local cut before
  "do_$2"
  cut=$(date +%s.%N)
  sleep 0.5 # what was under way
  before=$(steps_done)
  ! soon "$limit" has_done $((before + 1)) || took=$(jq -s --argjson before "$before" --argjson cut "$cut" 'map(select(.step > $before))[0].unix - $cut | . * 100 | round / 100' "$folder/steps.jsonl")
  mini exec scancel "$job" || true
  [[ -z $broken ]] || mini revive-node "$broken"
  soon 120 job_gone "$job" || true
}

rows=()
for ((round = 1; round <= rounds; ++round)); do
  for fault in "${faults[@]}"; do
    for launcher in "${launchers[@]}"; do
      one_round "$launcher" "$fault" "$round"
      printf '%s of round %d, %s: %s s\n' "$fault" "$round" "$launcher" "$took" >&2
      rows+=("$(jq -cn --arg launcher "$launcher" --arg fault "$fault" --argjson took "$took" '{$launcher, $fault, $took}')")
    done
  done
done
jq -cnr --argjson limit $limit '
  def median: sort_by(. // infinite) | .[length / 2 | floor];
  $ARGS.positional | group_by(.fault) | map({(.[0].fault):
    (group_by(.launcher) | map({(.[0].launcher): {s: map(.took), median: (map(.took) | median)}}) | add
     | .client.median as $c | map_values(. + {over_client: (if .median == null or $c == null then null else .median / $c * 10 | round / 10 end)}))}) | add
  | "RESULT " + ({bench: "versus", limit_s: $limit, faults: .} | tostring)' --jsonargs "${rows[@]}"
