#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# The examples with PyTorch and MPI (examples/pytorch, examples/mpi) on a minipod of 3 active nodes and a spare. Each one
#   - is told to save, to pause and to go on, loses a node, goes on from what it saved, and is told to stop, which it does at some
#     step S; nothing but orders makes it save;
#   - trains undisturbed to S;
#   - trains undisturbed to S without the lines that protect it;
# and prints the same digest of its state. DDP without these lines loses a node, too, and goes on from what it finds.
# Also printed: the lines of each example, and how many of them protect it (at most 150 and 30).
# As root, with PyTorch as scripts/torch_env.sh finds or makes it: scripts/proof/examples.sh BUILD [EXAMPLE...]
# fsdp_buffers goes on from the memory of the nodes, and redoes at most one step.
# EXAMPLE: ddp, fsdp, fsdp_buffers, lightning_ddp, accelerate_ddp, fit; all of them by default. Ends with one line RESULT {json}.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
(($#)) || { sed -n '3,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
build=$(realpath "$1")
shift
examples=("$@")
(($#)) || examples=(ddp fsdp fsdp_buffers lightning_ddp accelerate_ddp fit)
# shellcheck source=scripts/torch_env.sh
source "$source/scripts/torch_env.sh"
set -- "$build/launcher/holdfast" "$build/src/train/holdfast-train" "$build/src/tools/cli/holdfast-tool"
torch_packages=(lightning accelerate)
# shellcheck source=tests/support/torch_pod.sh
source "$source/tests/support/torch_pod.sh"

declare -A file=([ddp]=pytorch/ddp.py [fsdp]=pytorch/fsdp.py [fsdp_buffers]=pytorch/fsdp_buffers.py [lightning_ddp]=pytorch/lightning_ddp.py [accelerate_ddp]=pytorch/accelerate_ddp.py [fit]=mpi/fit.c)
for example in "${examples[@]}"; do
  from=$source/examples/${file[$example]:?}
  to=$home/${from##*/} plain=$home/plain_${from##*/}
  add_example "$from"
  if [[ $from == *.c ]]; then
    for one in "$to" "$plain"; do
      mpicc -std=gnu99 -O2 -Wall -Wextra -I "$source/client" "$one" "$build/client/libholdfast.a" -lpthread -o "${one%.c}" || exit 1
    done
  fi
done
chmod -R a+rX "$home"

# begin PROGRAM RUN STEPS EVERY FOLDER: submits it; sets `run` and `job`.
begin() {
  local command="python3 $1.py --dir $5 --steps $3 --every $4" launch=direct
  [[ $1 != *fit ]] || { command="/shared/home/$1 $5 $3 $4" launch=mpi; }
  run=runs/$2
  soon 180 all_idle || mini exec sinfo -N
  job=$(mini exec --chdir /shared/home env "${shell[@]}" holdfast submit --command "$command" -N 3 --spares 1 -J "$2" --parsable \
    --set cluster.ranks_per_node=1 --set "rank.launch=$launch" --set supervise.hang_floor_s=30) ||
    { echo "Bail out! submit failed"; exit 1; }
}
never=1000000000 # steps
restored_step() { events "$run" | jq -s 'map(select(.event == "restored" and .attempt == 2))[0].step // -1'; }
has_restored() { (($(restored_step) > 0)); }

# lose_node: the node of slot 1.
lose_node() {
  lost=$(nth 2)
  mini kill-node "$lost"
  check "$run: another attempt" soon 120 has_attempts 2
}
# DDP without its protection: `plain_step`, the newest step that it has saved when it is stopped.
plain_newest() { find "$home/$1" -name 'step-*.pt' | sed 's/.*step-0*\([0-9]*\)\.pt/\1/' | sort -n | tail -n 1; }
plain_beyond() { (($(plain_newest "$1") > $2)); }
plain_loses_node() {
  begin plain_ddp plain_ddp_lost $never 20 plain_ddp_lost.state
  check "$run: it saves" soon 180 plain_beyond plain_ddp_lost.state 0
  lose_node
  local before
  before=$(plain_newest plain_ddp_lost.state)
  check "$run: it saves again" soon 180 plain_beyond plain_ddp_lost.state "$before"
  mini exec holdfast ctl "/shared/home/$run" stop
  ends_as stopped 93
  plain_step=$(plain_newest plain_ddp_lost.state)
  mini revive-node "$lost"
  show_failure
}

order() { check "$run: $1" mini exec holdfast ctl "/shared/home/$run" "$1"; }

declare -A stopped_at digests
prove() {
  local example=$1 saved undisturbed
  plain_step=0
  [[ $example != ddp ]] || plain_loses_node

  begin "$example" "${example}_lost" $never $never "$example.lost"
  check "$run: it trains" soon 180 reaches 5
  order save
  check "$run: what it has saved is durable" soon 60 durable "$run" 1
  order pause
  check "$run: it holds" soon 60 holds_still
  order resume
  check "$run: it goes on" soon 60 reaches $(($(now_at) + 5))
  saved=$(newest_durable)
  lose_node
  check "$run: it comes back from its checkpoint" soon 120 has_restored
  if [[ $example == *_buffers ]]; then
    check "$run: from copies in the memory of nodes" equal "$(events "$run" | jq -rs 'map(select(.event == "restored" and .attempt == 2))[0].level')" partner
  else
    check "$run: from the newest durable one" equal "$(restored_step)" "$saved"
  fi
  check "$run: it trains on" soon 180 reaches $((plain_step > saved + 100 ? plain_step : saved + 100))
  order stop
  ends_as stopped 93
  check "$run: two attempts" equal "$(result "$run" '.attempts | length')" 2
  [[ $example != *_buffers ]] || check "$run: at most one step was redone" at_least 1 "$(result "$run" '.attempts[0].lost_steps')"
  stopped_at[$example]=$(said step) digests[$example]=$(said digest)
  check "$run: it saved the step at which it stopped" equal "$(newest_durable)" "${stopped_at[$example]}"
  mini revive-node "$lost"
  show_failure

  for undisturbed in "$example" "plain_$example"; do
    begin "$undisturbed" "${undisturbed}_undisturbed" "${stopped_at[$example]}" 20 "$undisturbed.undisturbed"
    ends_like_it "$example"
    check "$run: one attempt" equal "$(attempts)" 1
    [[ $undisturbed == plain_* ]] ||
      check "$run: all its checkpoints are durable" equal "$(all_durable)" $(((stopped_at[$example] + 19) / 20))
    show_failure
  done
  if ((plain_step > 0)); then
    begin plain_ddp plain_ddp_continued "${stopped_at[$example]}" 20 plain_ddp_lost.state
    ends_like_it "$example"
    show_failure
  fi
}
all_durable() { events "$run" | jq -s 'map(select(.event == "checkpoint_durable").step) | unique | length'; }
# ends_like_it EXAMPLE: with the digest of its run that lost a node.
ends_like_it() {
  ends_as "done" 0
  check "$run: the same bits" equal "$(said step) $(said digest)" "${stopped_at[$1]} ${digests[$1]}"
}

rows=()
for example in "${examples[@]}"; do
  prove "$example"
  lines=$(wc -l <"$source/examples/${file[$example]}") protect=$(grep -Ec "$marker" "$source/examples/${file[$example]}")
  check "$example: at most 150 lines" at_least 150 "$lines"
  check "$example: at most 30 of them protect it" at_least 30 "$protect"
  echo "# $example: $lines lines, $protect of them protect it; step ${stopped_at[$example]}, digest ${digests[$example]}"
  rows+=("$(jq -cn --arg example "$example" --arg digest "${digests[$example]}" --argjson step "${stopped_at[$example]:-null}" \
    --argjson lines "$lines" --argjson protect "$protect" \
    '{$example, $lines, lines_that_protect: $protect, $step, $digest}')")
done
echo "1..$count"
jq -cnr --argjson failed "$failed" --argjson checks "$count" '"RESULT " + ({proof: "examples", $checks, $failed, examples: $ARGS.positional} | tostring)' \
  --jsonargs "${rows[@]}"
exit $((failed > 0))
