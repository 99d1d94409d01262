#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# Jobs whose ranks are another program with the client, in C and in Python: examples/any-program. They are known to step and to
# save, follow orders, survive a lost node, and a rank of theirs that is stopped is found. They import the client from where
# Holdfast is installed.
# client_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

all_cases=(c python stop spawned files buffers)
builds=$(dirname "$(dirname "$(realpath "$1")")")

# start_ranks NAME LANGUAGE ARGUMENT...: 4 ranks, a step in 20 ms, a checkpoint every 50 steps, until `enough`.
start_ranks() {
  local name=$1 language=$2 program
  shift 2
  state=$home/$name.state
  mkdir -p "$state" "$home/client"
  cp "$source/examples/any-program/ranks.py" "$builds/tests/client/example_ranks" "$home/client/"
  chown -R 61000 "$state" "$home/client"
  case $language in
    c) program='"/shared/home/client/example_ranks"' ;;
    python) program='"/usr/bin/python3", "/shared/home/client/ranks.py"' ;;
  esac
  start "$name" --set "rank.command=[$program, \"/shared/home/$name.state\", \"1000000\", \"50\", \"20\"]" "$@"
}
# What rank $1 has after $2 steps, by arithmetic of another program.
value_of() {
  python3 -c "
v = $1
for _ in range($2): v = (v * 6364136223846793005 + 1442695040888963407) % 2**64
print(v)"
}
# All ranks of the last attempt ended at one step, with the values of an undisturbed run.
ends_undisturbed() {
  touch "$state/enough"
  ends_as "done" 0
  local rank attempt said step
  attempt=$(result "$run" '.attempts | length')
  for rank in 0 1 2 3; do
    said=$(cat "$home/$run/logs/attempt-$(printf %04d "$attempt")/rank-$(printf %05d "$rank").log")
    step=$(sed -n 's/.*step \([0-9]*\),.*/\1/p' <<<"$said")
    check "$run: rank $rank ends with the undisturbed value" equal "$said" "rank $rank: step $step, $(value_of "$rank" "$step")"
  done
}
attempts() { events "$run" | jq -s 'map(select(.event == "attempt_planned")) | length'; }
has_attempts() { (($(attempts) >= $1)); }
newest_durable() { events "$run" | jq -s 'map(select(.event == "checkpoint_durable").step) | max // -1'; }
# restored ATTEMPT: it has said so, from storage.
came_back() { [[ $(events "$run" | jq -rs --argjson a "$1" 'map(select(.event == "restored" and .attempt == $a))[0].level') == shared ]]; }

survives() {
  start_ranks "$1" "$1"
  check "$run: checkpoints of its own are durable" soon 90 durable "$run" 50
  check "$run: status says that it speaks" holds "$(mini exec holdfast status "/shared/home/$run")" "it speaks to its agents"
  check "$run: and how far it is" holds "$(mini exec holdfast status "/shared/home/$run")" "step "
  check "$run: an order to save is taken" mini exec holdfast ctl "/shared/home/$run" save
  check "$run: and one to pause" mini exec holdfast ctl "/shared/home/$run" pause
  check "$run: it holds" soon 30 holds_still
  check "$run: and goes on" mini exec holdfast ctl "/shared/home/$run" resume
  local node before rank
  node=$(nth 2) before=$(newest_durable)
  mini kill-node "$node"
  check "$run: another attempt" soon 60 has_attempts 2
  check "$run: it comes back from its checkpoint" soon 60 came_back 2
  check "$run: no older than the newest durable one" at_least "$(events "$run" | jq -s 'map(select(.event == "restored" and .attempt == 2))[0].step')" "$before"
  check "$run: it saves again" soon 60 durable "$run" $((before + 50))
  mini revive-node "$node"
  # One rank is stopped; nobody else waits for it.
  node=$(nth 1) before=$(newest_durable)
  check "$run: its ranks are there" soon 60 has_ranks "$node"
  rank=$(ranks_on "$node" | head -n 1)
  on "$node" kill -STOP "$rank"
  check "$run: a stopped rank is found" soon 90 has_attempts 3
  check "$run: as a hang" equal "$(events "$run" | jq -rs 'map(select(.event == "attempt_ended" and .attempt == 2))[0] | "\(.cause) on \(.node)"')" "rank hung on $node"
  check "$run: it saves again" soon 60 durable "$run" $((before + 50))
  ends_undisturbed
  check "$run: three attempts" equal "$(result "$run" '.attempts | length')" 3
  check "$run: the final step is on record" at_least "$(result "$run" .final_step)" $((before + 50))
  nothing_stays
}
ranks_on() { on "$1" pgrep -f '(example_ranks|ranks\.py) /shared'; }
has_ranks() { [[ -n $(ranks_on "$1") ]]; }
holds_still() {
  local now
  now=$(tail -n 1 "$home/$run/logs/metrics.jsonl" | jq .step)
  sleep 2
  [[ $(tail -n 1 "$home/$run/logs/metrics.jsonl" | jq .step) == "$now" ]]
}
case_c() { survives c; }
case_python() { survives python; }

case_stop() {
  # The program is told why it is to end and until when, saves, and says so by its exit code.
  start_ranks stop c --set rank.kind=client
  check "$run: checkpoints of its own are durable" soon 90 durable "$run" 50
  check "$run: stop" mini exec holdfast ctl "/shared/home/$run" stop
  ends_as stopped 93
  check "$run: one attempt" equal "$(result "$run" '.attempts | length')" 1
  check "$run: what it saved is known" equal "$(result "$run" '.why | contains("not known")')" false
}

case_spawned() {
  # Workers of the ranks open the client, too. Only the ranks are heard, and orders reach them; that is said when it is so.
  run=runs/spawned state=$home/spawned.state
  mkdir -p "$state" "$home/client"
  cp "$source/tests/fault/spawned.py" "$home/client/"
  chown -R 61000 "$state" "$home/client"
  start spawned --set 'rank.command=["/usr/bin/python3", "/shared/home/client/spawned.py", "/shared/home/spawned.state"]'
  check "$run: workers have spoken" soon 60 workers_have_spoken
  check "$run: checkpoints are durable" soon 60 durable "$run" 40
  check "$run: nobody asks for orders yet" holds "$(mini exec holdfast ctl "/shared/home/$run" pause)" "none has taken the order yet"
  check "$run: nor is one on record" equal "$(events "$run" | grep -c '"order_heard"')" 0
  check "$run: status says so" holds "$(mini exec holdfast status "/shared/home/$run")" "told to hold, which no rank has taken yet"
  touch "$state/ask"
  check "$run: a rank takes it" soon 30 order_heard
  mini exec holdfast ctl "/shared/home/$run" resume >/dev/null
  check "$run: stop is taken" holds "$(mini exec holdfast ctl "/shared/home/$run" stop)" "the state is saved after this step, and the run ends"
  ends_as stopped 93
  check "$run: one attempt" equal "$(result "$run" '.attempts | length')" 1
  check "$run: a worker's step counts for nothing" at_least 7000 "$(result "$run" ".attempts[0].last_step")"
  check "$run: no worker has ended the run" equal "$(result "$run" .final_step)" null
  check "$run: a rank's log says once that a worker is not heard" equal \
    "$(grep -c 'is a child of process .* which speaks for rank 0' "$home/$run/logs/attempt-0001/rank-00000.log")" 1
}
order_heard() { events "$run" | grep -q '"order_heard"'; }
workers_have_spoken() { [[ -e $state/spawn && -e $state/forkserver ]]; }

verify() { mini exec holdfast ckpt verify "/shared/home/$run/checkpoints/step-$(printf %08d "$1")"; }
has_step() { [[ -e $home/$run/checkpoints/step-$(printf %08d "$1")/manifest.json && -d $state/step-$(printf %08d "$1") ]]; }
case_files() {
  # The ranks name the files of their checkpoints. One byte of the newest one is damaged: nobody begins from it. Old ones go
  # as the settings say, and a pinned one stays.
  start_ranks files python --set rank.kind=client --set checkpoint.keep_files=2 --set 'checkpoint.files_in=["/shared/home"]'
  check "$run: a checkpoint has a manifest" soon 90 has_step 50
  check "$run: it is pinned" mini exec holdfast ckpt pin "/shared/home/$run" --step 50
  check "$run: it saves again" soon 60 durable "$run" 200
  check "$run: an older one goes" soon 60 gone 100
  check "$run: the pinned one stays" has_step 50
  check "$run: it is held" mini exec holdfast ctl "/shared/home/$run" pause
  check "$run: and holds still" soon 30 holds_still
  local newest file
  newest=$(newest_durable)
  check "$run: the newest is good" holds "$(verify "$newest")" "good"
  file=$state/step-$(printf %08d "$newest")/rank-00002
  written=$(stat -c %y "$file")
  printf %s $(($(head -c 1 "$file") % 9 + 1)) | dd of="$file" conv=notrunc status=none
  touch -d "$written" "$file" # bits that rot leave the time; what is written again later is no damage
  check "$run: the newest is damaged" holds "$(verify "$newest")" "DAMAGED"
  on "$(nth 1)" pkill -KILL -f 'ranks\.py /shared'
  check "$run: another attempt" soon 60 has_attempts 2
  check "$run: it comes back" soon 60 came_back 2
  check "$run: from the one before" equal "$(events "$run" | jq -s 'map(select(.event == "restored" and .attempt == 2))[0].step')" $((newest - 50))
  check "$run: and says why" equal "$(events "$run" | jq -s 'map(select(.event == "checkpoint_damaged"))[0].step')" "$newest"
  check "$run: status knows the one before" holds "$(mini exec holdfast status "/shared/home/$run")" "step $((newest - 50)) (the newest durable one"
  check "$run: it goes on" mini exec holdfast ctl "/shared/home/$run" resume
  check "$run: and saves again" soon 60 durable "$run" $((newest + 100))
  ends_undisturbed
  check "$run: what is left is listed" at_least "$(mini exec holdfast ckpt ls --json "/shared/home/$run" | jq '[.checkpoints[] | select(.kind == "files" and .file_count == 4)] | length')" 3
  newest=$(newest_durable)
  check "$run: prune" mini exec holdfast ckpt prune "/shared/home/$run" --keep 1 --files-in /shared/home
  check "$run: the newest and the pinned one stay" equal "$(mini exec holdfast ckpt ls --json "/shared/home/$run" | jq -c '[.checkpoints[].step]')" "[$newest,50]"
  check "$run: their files, too" equal "$(cd "$state" && echo step-*)" "step-00000050 step-$(printf %08d "$newest")"
  nothing_stays
}
gone() { [[ ! -e $home/$run/checkpoints/step-$(printf %08d "$1") && ! -e $state/step-$(printf %08d "$1") ]]; }
chosen() { events "$run" | jq -s --argjson a "$1" 'map(select(.event == "state_chosen" and .attempt == $a))[0]'; }
has_chosen() { [[ $(chosen "$1") != null ]]; }
last_step() { tail -n 1 "$home/$run/logs/metrics.jsonl" | jq -s '.[0].step // 0'; }
reaches() { (($(last_step) >= $1)); }
# has_copies NODE: of both ranks of its partner.
has_copies() { (($(on "$1" find /dev/shm -path '*/copy-*/seal' 2>/dev/null | sed 's|/[01]/seal$||' | sort -u | wc -l) == 2)); }
# mover_port_is_open NODE: its mover listens on a port that the manual tells firewalls to let through.
mover_port_is_open() {
  local port
  port=$(on "$1" bash -c 'cat /dev/shm/holdfast-state-*/buffers-*/port') &&
    jq -e --argjson port "$port" '.nodes[0] | $port >= .port and $port < .port + .ports' "$home/$run/nodes.json" >/dev/null
}
lost_steps() { result "$run" ".attempts[$1].lost_steps"; }

case_buffers() {
  # Its state is nowhere but in the memory of nodes.
  run=runs/buffers state=$home/buffers.state
  mkdir -p "$state" "$home/client"
  cp "$source/tests/fault/buffers.py" "$home/client/"
  chown -R 61000 "$state" "$home/client"
  start buffers --set 'rank.command=["/usr/bin/python3", "/shared/home/client/buffers.py", "/shared/home/buffers.state", "400"]'
  check "$run: it steps" soon 90 reaches 5
  local node torn rank
  check "$run: its partner has copies" soon 60 has_copies "$(nth 1)"
  check "$run: its mover listens on a port of the agents" mover_port_is_open "$(nth 1)"
  node=$(nth 2)
  mini kill-node "$node"
  check "$run: a state is chosen for the next attempt" soon 60 has_chosen 2
  check "$run: for the lost node's ranks its partner's copy" equal "$(chosen 2 | jq -r '"\(.level) \(.moved)"')" "partner 2"
  check "$run: it goes on" soon 60 reaches $(($(chosen 2 | jq '.step? // 0') + 3))
  mini revive-node "$node"
  # A seal is torn, and its rank ends: its state is not taken from there.
  mini exec holdfast ctl "/shared/home/$run" pause
  check "$run: it holds" soon 30 holds_still
  torn=$(nth 1) node=$(last_step)
  rank=$(on "$torn" pgrep -f 'buffers\.py /shared' | head -n 1)
  # shellcheck disable=SC2016 # the node's shell expands it
  on "$torn" bash -c 'for seal in /dev/shm/holdfast-state-*/buffers-*/rank-*/[01]/seal; do grep -qx "step $1" "$seal" && truncate -s -3 "$seal"; done' _ "$node"
  on "$torn" kill -KILL "$rank"
  check "$run: another state is chosen" soon 60 has_chosen 3
  check "$run: the same step, from copies" equal "$(chosen 3 | jq -r '"\(.step) \(.level) \(.moved)"')" "$node partner 2"
  mini exec holdfast ctl "/shared/home/$run" resume
  check "$run: it goes on" soon 60 reaches $((node + 3))
  ends_undisturbed
  check "$run: three attempts" equal "$(result "$run" '.attempts | length')" 3
  check "$run: at most one step was redone" at_least 1 "$(lost_steps 0)"
  check "$run: and none where the ranks held" equal "$(lost_steps 1)" 0
  nothing_stays
}

run_alone "$@"
