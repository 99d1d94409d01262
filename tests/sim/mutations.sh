#!/usr/bin/env bash
# Put one bug at a time into a copy of a production source, and test that the simulator finds it.
#
#   tests/sim/mutations.sh BUILD [SCHEDULES [PATTERN]]   BUILD: a build tree with sim_test; SCHEDULES: default 3000;
#                                                        PATTERN: of names of bugs, extended; default all
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
(($# >= 1)) || { sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
build=$(cd "$1" && pwd) schedules=${2:-3000} pattern=${3:-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# name | file | sed expression; B.2, E.1, F.1: of the review of version 0.1, whose simulator could not see them
mutations='
half of the agents, less one    | launcher/agent/leader/election_count.cpp   | s/2 \* granted >= voters/2 * granted + 2 >= voters/
terms fenced one too low        | launcher/agent/leader/leadership_state.cpp | s/if (term < term_) return false;/if (term < term_ - 1) return false;/
acts before it is on record     | launcher/agent/leader/leader_acts.cpp      | s/  writing_ = true;/  carry_out(std::exchange(count, 0)); writing_ = true;/
acts though replaced meanwhile  | launcher/agent/leader/journal_writer.cpp   | /must not be acted upon/,/result()/ s/if (const auto trouble = replaced()) return .trouble;//
commits though replaced         | launcher/agent/leader/leader.cpp           | s/return leads_still(run, term);/return leads_still(run, term) || true;/
log is not cut after an error   | launcher/supervise/journal.cpp             | s/if (torn_) {/if (false) {/
a minority names nodes lost     | launcher/supervise/node_watch.cpp          | s/return 2 \* reached >= voters;/return 2 * reached + 2 >= voters;/
spares that were never heard of | launcher/supervise/supervisor_effects.cpp  | s/RunState state = without_unheard_nodes();/RunState state = state_;/
adopts with a lost node         | launcher/supervise/supervisor.cpp          | s/ && lost_in_placement() < 0 && attempt_.whole()/ \&\& attempt_.whole()/
starts before the old has ended | launcher/supervise/supervisor_effects.cpp  | s/has_cleared(n, attempt())/has_cleared(n, attempt() - 1)/
attempts are not counted on     | launcher/supervise/supervisor_effects.cpp  | s/placement(), attempt() + 1,/placement(), std::max(1, attempt()),/
state in doubt is trusted       | launcher/supervise/supervisor_effects.cpp  | s/.trusted_step = state_.trusted_step,/.trusted_step = -1,/
failed starts end the run       | launcher/supervise/budget_table.cpp        | /case Kind::leader_changed:/,/return/ s/return CauseKind::infrastructure;/return CauseKind::program;/
lines that came too late count  | launcher/supervise/valid_events.cpp        | s/term = first->after->term;/term = seq = INT32_MAX;/
clears before ranks have ended  | launcher/agent/daemon/rank_ender.cpp       | s/if (left \&\& left->empty() \&\& leaving_.empty())/if (true)/
blames most of the nodes        | launcher/supervise/clear_watch.cpp         | s/const bool most = .*;/const bool most = false;/
blames them when most have ended | launcher/supervise/clear_watch.cpp        | s/std::max(told, most_at_)/told/
starts ranks again              | launcher/agent/daemon/rank_starter.cpp     | s/if (rank.pid > 0 || rank.ended || rank.failed) return;//
forgets what has not begun      | launcher/agent/daemon/rank_keeper.cpp      | s/rank.attempt < attempt \&\& rank.lives()/rank.attempt < attempt \&\& rank.started \&\& !rank.ended/
forgets the ranks of the last   | launcher/agent/daemon/agent.cpp            | s/^  adopt_what_runs();//
forgets the term of the last    | launcher/agent/daemon/leader_link.cpp      | s/^    remember_term(here_.in.scratch, hello.term);//
a heartbeat waits for storage (B.2) | launcher/agent/daemon/leader_link.cpp  | s/^Heartbeat LeaderLink::heartbeat() const {/&\n  files::is_there(here_.in.run.result());/
storage spends counts (E.1)     | launcher/supervise/budget_table.cpp        | s/f.blame == Blame::shared ||//
infrastructure spends counts    | launcher/supervise/run_state.cpp           | s/^  if (e.kind == "program") {/  if (e.kind != "planned") {/
no patience with storage        | launcher/supervise/first_bounds.cpp        | s/ + (row_of(phase)->patient ? work.patience_s : 0)//
nothing bounds what is new (F.1) | launcher/supervise/first_bounds.cpp       | s/if (planned < 0) return longest;/return longest;/
final states die with the agent | launcher/agent/daemon/rank_keeper.cpp      | s/^  rank.finished = record.finished;//
time runs backwards             | launcher/supervise/time_account.cpp        | s/if (elected) behind_ = .*;/;/
'
commands=$(ninja -C "$build" -t commands sim_test)
link=$(tail -n1 <<<"$commands")
status=0
while IFS='|' read -r name file expression; do
  name=$(xargs <<<"$name") file=$(xargs <<<"$file")
  [[ $name && $name =~ $pattern ]] || continue
  sed "$expression" "$root/$file" >"$work/mutated.cpp"
  if cmp -s "$work/mutated.cpp" "$root/$file"; then
    printf '%-34s NOT APPLIED to %s\n' "$name" "$file"; status=1; continue
  fi
  # A library that is compiled as one file is linked as a whole or not at all: compile all of it.
  source=$root/$file mutated=$work/mutated.cpp
  unity=$(grep -rlF --include='unity_*_cxx.cxx' "/$file\"" "$build" | grep -v fuzz | head -n1) || unity=''
  if [[ $unity ]]; then
    source=$unity mutated=$work/unity.cpp
    sed "s|\"[^\"]*/$file\"|\"$work/mutated.cpp\"|" "$unity" >"$mutated"
  fi
  # The build's own commands, for this source and with its object before the libraries.
  compile=$(grep -F -- " -c $source" <<<"$commands" | sed -E "s| -MD .* -c .*| -O1 -w -o $work/mutated.o -c $mutated|; s|^[^ ]*ccache ||")
  (cd "$build" && eval "$compile" && eval "${link/ -o tests\/sim\/sim_test / -o $work/sim_test $work/mutated.o }")
  if found=$(HOLDFAST_SCHEDULES=$schedules "$work/sim_test" --gtest_fail_fast \
      --gtest_filter='*NoSchedule*:*EndsNothing:*IsNoticed' 2>&1); then
    printf '%-34s NOT FOUND in %s schedules\n' "$name" "$schedules"; status=1
  else
    printf '%-34s found: %s\n' "$name" "$(grep -m1 -oE 'seed [0-9]+: it does not hold that .*' <<<"$found" || echo 'it ended by itself')"
  fi
done <<<"$mutations"
exit "$status"
