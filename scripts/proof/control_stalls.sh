#!/usr/bin/env bash
# Does a run lose a node that lives? And how soon does it notice one that does not? One long job on a minipod of seven nodes
# (four train, two are spares, one more is the batch host), for MINUTES; at random moments the control path of one node stands
# still for 1 to 20 s while its ranks train and reach each other:
#   agent    the agent's process is stopped
#   network  what goes to and comes from the ports of the agents is dropped (nftables)
#   storage  calls on /shared wait
# After every three of them a node loses all of its paths: it loses power, or its link is cut for 5 s (flap), and comes back.
# Counted are false losses (a node with ranks named lost that was not killed or cut in the last 30 s), attempts that ended and need
# not have, losses that were not noticed, and seconds from a kill to `node_lost`. A spare has no ranks that speak for it: it may be
# named lost while it does not answer, costs nothing, and is counted apart. LOAD busy loops share the machine. As root:
#   scripts/proof/control_stalls.sh BUILD [MINUTES=240] [LOAD=2]
# Ends with one line RESULT {json}; exit code 0 only without false and missed losses, with a p99 below 3 s, and if every node
# came back.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"
(($# >= 1)) || die "which build? scripts/proof/control_stalls.sh BUILD [MINUTES] [LOAD]"
command -v nft >/dev/null || die "the control path is cut by nft, which is not here. Run scripts/setup.sh nftables?"
build=$(realpath "$1") minutes=${2:-240} load=${3:-2}
export HOLDFAST_TEST_FAST=1
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-stalls.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
busy=()
# shellcheck disable=SC2154 # pod, dir and home are of pod.sh
trap '((${#busy[@]} == 0)) || kill "${busy[@]}"; "$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

port=47000 run=stalls
mini up --nodes 7 --storage fuse
install_programs "$build/launcher/holdfast" "$build/src/train/holdfast-train" "$build/src/tools/cli/holdfast-tool"
make_tokens
job=$(submit_held "$run" --set train.steps=1000000 --set checkpoint.every=200 --set cluster.nodes=4 --set cluster.spares=3 \
  --set cluster.ranks_per_node=1 --set train.lanes=4 --set "supervise.port=$port" --set supervise.max_restarts=100000 \
  --set supervise.max_node_failures=100000 --set supervise.max_without_checkpoint=100000)
soon 120 training "$run" 1 || { show_record "$run"; die "the job does not train"; }
for ((i = 0; i < load; ++i)); do
  (while :; do :; done) &
  busy+=($!)
done

on() { local node=$1; shift; mini exec --root --node "$node" --chdir / "$@"; }
batch_host() { mini exec squeue -h -j "$job" -o %B; }
any_node() { mini exec sinfo -h -N -o %N | grep -vx "$(batch_host)" | shuf -n 1; }
attempts() { events "$run" | jq -s 'map(select(.event == "first_step").attempt) | max'; }
in_ranks() { placement "$run" | grep -qx "$1"; }
# note KIND NODE SECONDS
note() { jq -cn --arg kind "$1" --arg node "$2" --argjson s "$3" --argjson unix "$(date +%s.%3N)" '{kind: $kind, node: $node, seconds: $s, unix: $unix}' >>"$dir/done.jsonl"; }
came_back() { events "$run" | jq -es --arg n "$1" --argjson since "$2" 'any(.event == "node_returned" and .node == $n and .unix > $since)' >/dev/null; }
was_lost() { events "$run" | jq -es --arg n "$1" --argjson since "$2" 'any(.event == "node_lost" and .node == $n and .unix > $since)' >/dev/null; }

stall_agent() { # NODE SECONDS
  local agent
  agent=$(on "$1" pgrep -f '^[^ ]*holdfast agent .*--serve')
  on "$1" kill -STOP "$agent"
  sleep "$2"
  on "$1" kill -CONT "$agent" 2>/dev/null || true # it may have been replaced
}
stall_network() {
  local rule="tcp dport $port-$((port + 7)) drop; tcp sport $port-$((port + 7)) drop"
  on "$1" nft "table inet cut { chain in { type filter hook input priority 0; $rule; }; chain out { type filter hook output priority 0; $rule; }; }"
  sleep "$2"
  on "$1" nft delete table inet cut
}
stall_storage() {
  mini hang-shared "$1"
  sleep "$2"
  mini wake-shared "$1"
}
lose_power() {
  mini kill-node "$1"
  soon 60 was_lost "$1" "$2" || true
  mini revive-node "$1"
}
lose_flap() {
  mini cut-link "$1"
  sleep 5
  mini heal-link "$1"
}

kinds=(agent network storage) losses=(power flap) until=$((SECONDS + minutes * 60))
for ((i = 0; SECONDS < until; ++i)); do
  hold "$run"
  node=$(any_node)
  if ((i % 4 < 3)); then
    kind=${kinds[RANDOM % 3]} seconds=$((RANDOM % 20 + 1))
    note "$kind" "$node" "$seconds"
    "stall_$kind" "$node" "$seconds"
    sleep $((RANDOM % 5 + 3))
  else
    kind=${losses[RANDOM % 2]} now=$(attempts) since=$(date +%s.%3N) had_ranks=false
    ! in_ranks "$node" || had_ranks=true
    "lose_$kind" "$node" "$since"
    jq -cn --arg kind "$kind" --arg node "$node" --argjson unix "$(jq -s --arg n "$node" 'map(select(.node == $n and (.fault == "kill-node" or .fault == "cut-link"))) | last.unix' "$dir/faults.jsonl")" \
      --argjson ranks $had_ranks '{kind: $kind, node: $node, unix: $unix, ranks: $ranks}' >>"$dir/lost.jsonl"
    [[ $had_ranks == false ]] || soon 120 training "$run" $((now + 1)) || echo "# training does not go on after $kind of $node"
    soon 120 came_back "$node" "$since" || echo "# $node has not come back"
    sleep 10
  fi
  printf '%d s: %s of %s\n' "$SECONDS" "$kind" "$node"
  [[ -n $(mini exec squeue -h -j "$job" -o %T) ]] || { show_record "$run"; die "the job has ended"; }
done
result=$(jq -n --slurpfile events <(events "$run") --slurpfile lost "$dir/lost.jsonl" --slurpfile stalls "$dir/done.jsonl" --argjson steps "$(last_step "$run")" '
  def at(p): sort | .[([(length * p | ceil) - 1, 0] | max)] | . * 1000 | round / 1000;
  [$lost[] | . as $l | ([$events[] | select(.event == "node_lost" and .node == $l.node and .unix >= $l.unix and .unix < $l.unix + 30)][0].unix) as $seen
    | ([$events[] | select(.event == "node_returned" and .node == $l.node and .unix >= $l.unix)][0].unix) as $back
    | . + {seen: (if $seen then $seen - .unix else null end), back: ($back != null)}] as $losses
  | [$events[] | select(.event == "node_lost") | . as $e | select(all($lost[]; .node != $e.node or $e.unix < .unix or $e.unix > .unix + 30))] as $false
  | [$events[] | select(.event == "attempt_ended") | . as $e | select(all($lost[]; (.ranks | not) or $e.unix < .unix or $e.unix > .unix + 90))] as $ended
  | {proof: "control_stalls", hours: ($events[-1].unix - $events[0].unix | . / 36 | round / 100), steps: $steps,
     stalls: ($stalls | group_by(.kind) | map({(.[0].kind): length}) | add), stalled_s: ($stalls | map(.seconds) | add),
     losses: ($losses | group_by(.kind) | map({(.[0].kind): length}) | add), not_noticed: ($losses | map(select(.seen == null)) | length),
     not_back: ($losses | map(select(.back | not)) | length), false_losses: ($false | map(select(.slot != null)) | length),
     silent_spares: ($false | map(select(.slot == null)) | length), needless_ends: ($ended | length),
     terms: ($events | map(select(.event == "leader_elected")) | length),
     detect_s: ($losses | map(.seen // empty) | {p50: at(0.5), p99: at(0.99), longest: max}), false: ($false + $ended | map(select(.slot != null)))}')
printf 'RESULT %s\n' "$(jq -c . <<<"$result")"
jq -e '.false_losses + .needless_ends + .not_noticed + .not_back == 0 and .detect_s.p99 < 3' <<<"$result" >/dev/null
