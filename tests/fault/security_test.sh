#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# What another user of the same nodes can see and do.
# security_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

all_cases=(security replaced silent)

case_security() {
  # Another user of the same node can read nothing of the run, and no agent accepts a connection of that user. The user
  # intruder is of the run directory's group, and may look.
  install -d -o 61000 -g 61001 -m 2750 "$home/security"
  start security --set train.steps=1000000 --set 'rank.environment=["TOKEN=hunter2"]' # until it is told to end
  trains_to 10
  local node address port secret agent before file names
  node=$(nth 1)
  address=$(jq -r --arg n "$node" '.nodes[] | select(.name == $n).address' "$home/$run/nodes.json")
  port=$(jq -r '.nodes[0].port' "$home/$run/nodes.json")
  secret=$(<"$home/$run/secret")
  agent=$(on "$node" pgrep -n -f '^[^ ]*holdfast agent')
  before=$(resident "$node" "$agent")
  check "nobody else lists the run directory" denied stranger "$node" ls "/shared/home/$run"
  check "nobody else reads the secret" denied intruder "$node" cat "/shared/home/$run/secret"
  a_colleague_looks
  says_where_it_is
  check "something lies in the memory of $node" at_least "$(on "$node" find /dev/shm /tmp -name 'holdfast*' | wc -l)" 2
  for file in $(on "$node" find /dev/shm /tmp -path '*holdfast*' \( -type f -o -type s \)); do
    check "its owner opens ${file##*/}" mini exec --node "$node" --chdir / test -r "$file" -a -w "$file"
    check "nobody else does" denied intruder "$node" test -r "$file" -o -w "$file"
  done
  # The other user sends endless data: the agent closes the connection and keeps nothing.
  check "the agent hangs up on a stranger" intruder "$node" timeout 60 bash -c \
    "exec 3<>/dev/tcp/$address/$port; (yes hello | head -c 100000000 >&3) 2>/dev/null; timeout 30 cat <&3 >/dev/null 2>&1; ((\$? != 124))"
  check "and on one that says nothing" intruder "$node" timeout 60 bash -c "exec 3<>/dev/tcp/$address/$port; cat <&3 >/dev/null"
  holds_silent_connections "$node" "$address" "$port" "$agent"
  check "its environment shows whose a rank is" mini exec --node "$node" --chdir / grep -qz HOLDFAST_RANK "/proc/$(on "$node" pgrep -n holdfast-train)/environ"
  check "an agent shows nothing, also to processes of its user" denied mini exec --node "$node" --chdir / head -c 1 "/proc/$agent/environ"
  check "the agent is the same" equal "$(on "$node" pgrep -n -f '^[^ ]*holdfast agent')" "$agent"
  check "and no larger (kB)" at_least $((before + 16384)) "$(resident "$node" "$agent")"
  check "faults are not taken: drill.allowed is false" denied mini exec holdfast inject "/shared/home/$run" "$node" kill_agent
  mini exec --node "$node" --chdir / env "LEAK=$secret" sh -c 'until [ -e /shared/home/found ]; do sleep 0.1; done' &
  check "a leak would be found" soon 60 leaks "$node" "$secret"
  touch "$home/found"
  wait $!
  for node in $(jq -r '.nodes[].name' "$home/$run/nodes.json"); do
    check "no command line or environment on $node has the secret" equal "$(places_of_secret "$node" "$secret")" 0
  done
  check "no file of the run but one has it" equal "$(grep -rslF "$secret" "$home/$run" | xargs -r -n 1 basename)" secret
  check "it trains on" soon 60 step_reached "$run" $(($(last_step "$run") + 2))
  names=$(on "$(nth 1)" ls /dev/shm | grep '^holdfast-')
  check "it is told to end" mini exec holdfast ctl "/shared/home/$run" stop
  ends_as stopped 93
  check "the job's comment says so" soon 60 has_comment '"state":"stopped'
  check "the job's log has a summary" holds "$(mini exec holdfast logs --job "/shared/home/$run")" "summary of $run: stopped"
  check "nothing has disturbed it" equal "$(result "$run" '.attempts | length')" 1
  check "its checkpoints are sound" mini exec holdfast ckpt verify "/shared/home/$run"
  nothing_stays
  names_are_taken "$names"
}
case_replaced() {
  # The user intruder may write to the folder above the run directory, and puts another one there while the job waits. Its secret
  # leads to the owner's own, which only the owner can read.
  install -d -o 61000 -g 61001 -m 2770 "$home/group"
  soon 180 all_idle
  run=group/replaced
  job=$(submit "$run" -- --hold 2>"$dir/warned") || cat "$dir/warned"
  check "submit warns" grep -q "could put another folder in the place of the run directory" "$dir/warned"
  check "a colleague moves it away" mini exec --intruder --chdir / mv "/shared/home/$run" /shared/home/group/away
  cp -r "$home/group/away" "$home/$run"
  rm "$home/$run/secret"
  ln -s ../away/secret "$home/$run/secret"
  sed -i 's|^command = .*|command = ["touch", "/shared/home/group/started"]|' "$home/$run/config.toml"
  chown -R 61001:61001 "$home/$run"
  chmod -R a+rwX "$home/$run"
  check "its command is another one" grep -q /shared/home/group/started "$home/$run/config.toml"
  check "the job may begin" mini exec scontrol release "$job"
  check "it ends" soon 120 job_gone "$job"
  check "nothing of the other one was started" test ! -e "$home/group/started"
  check "the job's log says why" grep -rq "belongs to intruder, not to holdfast" "$home/$run/logs"
  check "nor does the owner start it by hand" denied mini exec holdfast run "/shared/home/$run"
}
# names_are_taken NAMES: the other user has seen what a run calls its folders in the memory of its nodes, and makes them on two
# nodes, open to everybody, before the run goes on.
# shellcheck disable=SC2046,SC2086 # each name is a word
names_are_taken() {
  local node name trap step
  node=$(nth 1) trap=$(nth 2)
  check "it had folders in the memory of its nodes" at_least "$(wc -w <<<"$1")" 2
  for name in $1; do
    check "another user makes $name" intruder "$node" sh -c "mkdir -p /dev/shm/$name && chmod 0777 /dev/shm/$name"
    check "or a link of that name" intruder "$trap" sh -c "mkdir -p /dev/shm/mine && chmod 0777 /dev/shm/mine && ln -sfn /dev/shm/mine /dev/shm/$name"
  done
  step=$(last_step "$run")
  start security --set train.steps=1000000
  trains_to $((step + 10))
  check "nodes where the names are taken train" holds "$(placement "$run")" "$node"
  check "so do those with links" holds "$(placement "$run")" "$trap"
  check "under names of their own" at_least "$(on "$node" find /dev/shm -maxdepth 1 -name 'holdfast-*' -user 61000 | wc -l)" 2
  check "nothing was put into the others" equal "$(on "$node" find $(printf '/dev/shm/%s ' $1) -mindepth 1; on "$trap" find /dev/shm/mine -mindepth 1)" ""
  check "it is told to end" mini exec holdfast ctl "/shared/home/$run" stop
  ends_as stopped 93
  on "$node" rm -rf $(printf '/dev/shm/%s ' $1)
  on "$trap" rm -rf /dev/shm/mine $(printf '/dev/shm/%s ' $1)
  nothing_stays
}
# Hundreds of them at a time: the agent keeps few, says so once, and the run notices nothing.
holds_silent_connections() {
  local step
  step=$(last_step "$run")
  intruder "$1" timeout 60 bash -c "for ((i = 0; i < 400; ++i)); do exec {fd}<>/dev/tcp/$2/$3 || exit 1; done; touch /tmp/held; sleep 6" &
  check "another user holds connections to the agent" soon 30 on "$1" test -e /tmp/held
  check "which keeps few of them" at_least 150 "$(on "$1" sh -c "ls /proc/$4/fd | wc -l")"
  check "and says so" soon 20 grep -q "too many connections were open" "$home/$run/logs/agent-$1.log"
  check "training goes on meanwhile" soon 60 step_reached "$run" $((step + 2))
  wait $!
}
a_colleague_looks() {
  local dir=/shared/home/$run answer
  colleague() { mini exec --intruder --chdir / holdfast "$@" 2>&1; }
  says_in_job_log() { holds "$(colleague logs --job "$dir")" "$1"; }
  check "a colleague sees how it is getting on" holds "$(colleague status "$dir")" training
  check "and lists it" holds "$(colleague ls /shared/home)" "$dir"
  check "reads the events" holds "$(colleague events "$dir")" first_step
  check "reads the logs of a rank" colleague logs "$dir" --lines 1
  check "and of the job" soon 60 says_in_job_log "trains: step" # it is told there every few seconds
  answer=$(colleague report --markdown "$dir")
  check "gets a report" holds "$answer" 'Report of the run security'
  check "without what may be secret" holds "$answer" 'TOKEN=(not shown)'
  check "nor does the owner hand it on" holds "$(mini exec holdfast report --markdown "$dir")" 'TOKEN=(not shown)'
  check "gives no orders" denied colleague ctl "$dir" save
  check "and is told why" holds "$(colleague ctl "$dir" save)" "only holdfast gives orders to this run"
  check "nobody but the owner reads all settings" denied intruder "$node" cat "$dir/config.toml"
  check "the group reads nothing of them that may be secret" denied intruder "$node" grep -rsq hunter2 "$dir"
  answer=$(stranger "$node" /shared/opt/holdfast/bin/holdfast status "$dir" 2>&1)
  check "a stranger is told whose it is" holds "$answer" belongs to holdfast
}
# Of another group.
stranger() { local node=$1; shift; on "$node" setpriv --reuid=61002 --regid=61002 --clear-groups "$@"; }
says_where_it_is() {
  check "the job's comment says where it is" soon 120 has_comment '"state":"training"'
  check "holdfast avail knows the nodes that are busy" \
    equal "$(mini exec holdfast avail --json | jq -c '.partitions[0] | [.nodes, .idle + .busy, (.blocks | length) > 0 or .idle == 0]')" '[4,4,true]'
}
has_comment() { [[ $(mini exec squeue -h -t all -j "$job" -o %k) == *'"holdfast":1,'*"$1"* ]]; }
case_silent() {
  # Another user connects to every port of a node's own address that is opened there, as that of libpmix, and says nothing.
  local node seconds
  # shellcheck disable=SC2016 # for the shell of the node
  intruder dgx001 timeout 300 bash -c 'declare -A held; touch /tmp/waits
    while sleep 0.02; do
      while read -r _ at _ state _; do
        [[ $state == 0A && $at == 0100007F:* && ! ${held[$at]-} ]] || continue
        exec {fd}<>"/dev/tcp/127.0.0.1/$((16#${at#*:}))" && held[$at]=1 && echo "$at" >>/tmp/held-ports
      done </proc/net/tcp
    done' 2>/dev/null &
  check "another user waits for ports on dgx001" soon 30 on dgx001 test -e /tmp/waits
  start silent --set train.steps=1000000 --set cluster.spares=0 # then the batch host has ranks
  trains_to 10
  check "dgx001 has ranks" holds "$(placement "$run")" dgx001
  check "the other user has found ports" on dgx001 test -s /tmp/held-ports
  seconds=$(events "$run" | jq -s '(map(select(.event == "first_step"))[0].unix) - (map(select(.event == "attempt_planned"))[0].unix) | ceil')
  check "they hold up no start (s)" at_least 30 "$seconds"
  check "the log of the PMIx server says that they are closed" \
    grep -q "connections of other users to the PMIx server of this node have been closed" "$home/$run/logs/attempt-0001/pmix-dgx001.log"
  check "it is told to end" mini exec holdfast ctl "/shared/home/$run" stop
  ends_as stopped 93
  on dgx001 pkill -u 61001 -f held-ports
  wait $!
  on dgx001 rm -f /tmp/held-ports /tmp/waits
  nothing_stays
}
intruder() { local node=$1; shift; mini exec --intruder --node "$node" --chdir / "$@"; }
denied() { if "$@" >/dev/null 2>&1; then echo "it was allowed"; return 1; fi; }
# The secret is passed by stdin: an argument of the search would find itself.
places_of_secret() {
  # shellcheck disable=SC2016 # for the node's shell
  on "$1" bash -c 'read -r secret
    cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr "\0" "\n" | grep -cF -f <(printf "%s\n" "$secret")' <<<"$2"
}
leaks() { (($(places_of_secret "$@") > 0)); }
# shellcheck disable=SC2016 # for awk
resident() { on "$1" awk '/^VmRSS/ { print $2 }' "/proc/$2/status"; }

run_cases "$@"
