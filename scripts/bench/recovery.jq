# What each fault of a benchmark cost. In: $faults (unix, fault, node), $events and $metrics of the runs, each with `run`.
#   event            from                                   to
#   detect_s         the fault log                          the first event that names it
#   decide_s         there                                  the next attempt's plan
#   clear_s          there                                  its start: what was left of the old one is gone
#   launch_s         there                                  all ranks are up, where they were planned
#   restore_s        there                                  the state is back
#   first_step_s     there                                  the first new step
# A fault that ends no attempt (the leader's process, the node of a leader without ranks): takeover_s is the new leader's adoption of what runs, gap_s the
# longest pause between two steps in the ten seconds after it.
def seconds: (.[0:19] + "Z" | fromdateiso8601) + ("0" + (.[19:-1] // "") | tonumber);
def at(p): sort | if length == 0 then null else .[([(length * p | ceil) - 1, 0] | max)] end;
def round_ms: if . == null then null else . * 1000 | round / 1000 end;
def stats: map(select(. != null)) | {p50: (at(0.5) | round_ms), p99: (at(0.99) | round_ms)};

def row($k):
  [$events[] | select(.run == $k.run and .unix >= $k.unix)] as $after
  | def first_of(f): [$after[] | select(f)] | first;
  first_of(.event == "attempt_ended") as $ended
  | if ($k.fault | IN("kill-leader", "kill-leader-spare")) then
      [$metrics[] | select(.run == $k.run) | .time | seconds | select(. >= $k.unix - 1 and . <= $k.unix + 10)] as $t
      | {fault: $k.fault, node: $k.node, detect_s: (first_of(.event == "leader_elected").unix - $k.unix),
         takeover_s: (first_of(.event == "attempt_adopted").unix - $k.unix),
         gap_s: ([range(1; $t | length) as $i | $t[$i] - $t[$i - 1]] | max)}
    else
      (first_of(.event == "node_lost" or .event == "rank_exited" or .event == "rank_failed" or .event == "attempt_ended")) as $seen
      | first_of(.event == "attempt_planned") as $planned
      | ([$after[] | select(.attempt == $planned.attempt)]) as $next
      | def of(e): [$next[] | select(.event == e)] | first | .unix;
      {fault: $k.fault, node: $k.node, recovered_s: (of("first_step") - $k.unix), detect_s: ($seen.unix - $k.unix),
       decide_s: ($planned.unix - $seen.unix), clear_s: (of("attempt_started") - $planned.unix),
       launch_s: (of("placement_verified") - of("attempt_started")), restore_s: (of("restored") - of("placement_verified")),
       first_step_s: (of("first_step") - of("restored")), lost_steps: ([0, $ended.step - ([$next[] | select(.event == "restored")] | first | .step)] | max)}
    end;

def line: .fault + " " + (.node // "") + ": " + ([to_entries[] | select(.key != "fault" and .key != "node") | "\(.key) \(.value | round_ms)"] | join(", "));

[$faults[] | . as $k | (try row($k) catch ({fault: $k.fault, node: $k.node, unfinished: true}))] as $rows
| ($metrics | map(.step_s) | at(0.5)) as $step_s
| ($rows[] | line),
  "RESULT " + ({step_s: ($step_s | round_ms),
    faults: ($rows | group_by(.fault) | map({key: .[0].fault, value: (. as $of
      | {count: length, unfinished: (map(select(.unfinished)) | length)}
        + ([$of[] | keys[]] | unique - ["fault", "node", "unfinished"] | map(. as $name | {key: $name, value: ($of | map(.[$name]) | stats)}) | from_entries))}) | from_entries)} | tostring)
