#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# `holdfast avail`, `submit`, `status` and `report` beside real accounts (slurmdbd and MariaDB) on a minipod of four nodes:
#   - what `avail` calls idle and what it says of limits, and what SLURM then does with jobs that are just so large, and larger;
#   - jobs that wait for a limit of an account or a QOS: their reason in words; those that can never start;
#   - a wrong account, a wrong QOS, a limit that refuses, a user without an account: problem, cause, suggestion and exit code;
#   - the energy of a run whose nodes measure none;
#   - a slurmdbd that stands still.
# Needs the packages slurmdbd and mariadb-server, and root: scripts/proof/accounts.sh BUILD
# Ends with one line RESULT {json}; exit code 0 only if every check held.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
(($# == 1)) || { sed -n '3,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
build=$(realpath "$1")
set -- "$build/launcher/holdfast" "$build/src/train/holdfast-train" "$build/src/tools/cli/holdfast-tool"
# shellcheck disable=SC2034 # for fault.sh
pod_options=(--profile accounting)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

admin() { mini exec --root sacctmgr --immediate --quiet "$@" >/dev/null; }
admin add qos short MaxWall=00:10:00
admin add qos strict MaxWall=00:10:00 Flags=DenyOnLimit
admin add account physics Description=physics Organization=minipod GrpTRES=node=2
admin add user holdfast Account=physics QOS=low,short,strict DefaultQOS=low
admin modify user where name=holdfast account=users set MaxJobs=2
admin delete user name=intruder

# sleeps NAME ARGUMENT...: submits a program that sleeps, and prints the job's id.
sleeps() {
  local name=$1
  shift
  mini exec holdfast submit --command 'sleep 600' --spares 0 --set "run.dir=/shared/home/$name" --parsable "$@"
}
# refused EXIT_CODE WORDS NAME ARGUMENT...
refused() {
  local said status=0
  said=$(sleeps "${@:3}" 2>&1) || status=$?
  echo "$said"
  equal "$status" "$1" && holds "$said" "$2"
}
avail() { mini exec holdfast avail --json | jq -cr "$1"; }
avail_is() { equal "$(avail "$1")" "$2"; }
limit_is() { avail_is ".limits[] | select(.$1) | [.limits.$2, .used.$2]" "$3"; } # WHOSE LIMIT [VALUE,USED]
job_is() { equal "$(mini exec squeue -h -j "$1" -o '%T %r')" "$2"; } # JOB 'STATE REASON'
status_says() { holds "$(mini exec holdfast status "/shared/home/$1")" "$2"; }
end_all() { mini exec scancel --user=holdfast && soon 60 all_idle; }
physics='account == "physics" and .shared' users='account == "users" and (.shared | not)'

check "accounts, the default first" avail_is .accounts '["users","physics"]'
check "QOS" avail_is '.qos | sort' '["high","low","short","strict"]'
check "all nodes are idle" avail_is '.partitions[0].idle' 4
all=$(mini exec sbatch --parsable --output=/dev/null -N4 --exclusive --wrap 'sleep 600')
check "a job of all of them starts" soon 30 job_is "$all" "RUNNING None"
check "none is idle" avail_is '.partitions[0] | [.idle, .busy]' '[0,4]'
end_all

check "the account's limit, unused" limit_is "$physics" GrpTRES '["node=2","node=0"]'
two=$(sleeps two -A physics -N 2)
check "a job of so many nodes starts" soon 30 job_is "$two" "RUNNING None"
check "the account's limit, used up" limit_is "$physics" GrpTRES '["node=2","node=2"]'
one=$(sleeps one -A physics -N 1)
check "another job of the account waits" soon 30 job_is "$one" "PENDING AssocGrpNodeLimit"
check "status says why" status_says one "PENDING (AssocGrpNodeLimit: more nodes than the account's jobs may have together)"
check "two nodes are idle all the same" avail_is '.partitions[0].idle' 2
other=$(sleeps other -A users -N 1)
check "which another account gets" soon 30 job_is "$other" "RUNNING None"
second=$(sleeps second -A users -N 1)
check "and once more" soon 30 job_is "$second" "RUNNING None"
check "its limit of jobs, used up" limit_is "$users" MaxJobs '["2","2"]'
end_all
first=$(sleeps first -N 1) && second=$(sleeps second -N 1) && third=$(sleeps third -N 1)
check "a third job waits" soon 30 job_is "$third" "PENDING AssocMaxJobsLimit"
check "status says why" status_says third "AssocMaxJobsLimit: more running jobs than you may have in the account"
check "while the first two run" soon 30 job_is "$first" "RUNNING None"
end_all

check "the limit of the QOS" limit_is 'qos == "short"' MaxWall '["00:10:00",null]'
long=$(sleeps long -A physics -q short -t 60 -N 1 2>"$dir/long.err")
check "submit says that it may never start" holds "$(<"$dir/long.err")" \
  "job $long may never start: SLURM gives QOSMaxWallDurationPerJobLimit as the reason why it waits (more time than a job of the QOS may have)"
check "it waits" soon 30 job_is "$long" "PENDING QOSMaxWallDurationPerJobLimit"
check "status says why" status_says long "QOSMaxWallDurationPerJobLimit: more time than a job of the QOS may have"
fits=$(sleeps fits -A physics -q short -t 10 -N 1)
check "a shorter one starts" soon 30 job_is "$fits" "RUNNING None"
end_all
check "a QOS that refuses" refused 3 "Ask for less with -N or -t, or wait? 'holdfast avail' lists your limits" strict -A physics -q strict -t 60 -N 1

check "a wrong account" refused 2 "Set -A otherwise? 'holdfast avail' lists your accounts" wrong -A nowhere -N 1
check "a wrong QOS" refused 2 "Set -q otherwise? 'holdfast avail' lists the QOS of your accounts" wrong -q nosuch -N 1
check "an account's QOS with another account" refused 2 "Set -q otherwise?" wrong -A users -q short -N 1
right=$(sleeps wrong -N 1)
check "the same run with a right one" soon 30 job_is "$right" "RUNNING None"
end_all

install -d -m 1777 "$dir/shared/others"
check "a user without an account: avail" holds "$(mini exec --intruder holdfast avail)" "you have no account on this cluster"
intruder() {
  local said status=0
  said=$(mini exec --intruder --chdir /shared/others holdfast submit --command true --spares 0 -N 1 2>&1) || status=$?
  equal "$status" 2 && holds "$said" "'holdfast avail' lists your accounts"
}
check "a user without an account: submit" intruder

run=short
mini exec holdfast submit --command true --spares 0 -N 1 --set run.dir=/shared/home/short --parsable >"$dir/short.id"
check "a run ends" soon 120 over "$run"
sacct_line() { mini exec env SLURM_TIME_FORMAT=%s sacct -n -P -X -j "$(<"$dir/short.id")" -o "$1"; }
ended() { [[ $(sacct_line State) == COMPLETED ]]; }
check "sacct has its job" soon 60 ended
report() { mini exec holdfast report /shared/home/short --markdown; }
told=$(report)
times=$(sacct_line Start,End | tr '|' '\n' | while read -r t; do date -u -d "@$t" +%FT%TZ; done | paste -sd'|' | sed 's/|/ | /')
check "the report's energy: times of sacct, nothing measured" holds "$told" "| $(<"$dir/short.id") | $times |  | not measured |"
check "and why" holds "$told" "This cluster has no plug-in that measures energy (AcctGatherEnergyType)."
echo "# sacct: $(sacct_line JobIDRaw,Start,End,ConsumedEnergyRaw)"

mini exec --root pkill -STOP -x slurmdbd
took() { # FILE COMMAND...: prints the seconds
  local begin=$EPOCHREALTIME
  mini exec timeout 60 "${@:2}" >"$1" 2>&1 || echo "failed: $*" >>"$1"
  jq -n "$EPOCHREALTIME - $begin | . * 10 | round / 10"
}
avail_s=$(took "$dir/avail" holdfast avail)
status_s=$(took "$dir/status" holdfast status /shared/home/short)
report_s=$(took "$dir/report" holdfast report /shared/home/short --markdown)
mini exec --root pkill -CONT -x slurmdbd
check "slurmdbd stands still: avail has the nodes" holds "$(<"$dir/avail")" "LARGEST IDLE BLOCK"
check "... and the limits that slurmctld knows" holds "$(<"$dir/avail")" "account physics, all its users together: GrpTRES node=2"
check "... and says what it does not know" holds "$(<"$dir/avail")" "not known: QOS: SLURM's accounting does not answer"
check "... status is what it was" holds "$(<"$dir/status")" "true: done"
check "... report says that energy is not known" holds "$(<"$dir/report")" "accounting does not answer"

version=$(mini exec sinfo --version)
jq -cn --arg slurm "${version##* }" --argjson checks "$count" --argjson failed "$failed" --argjson a "$avail_s" --argjson s "$status_s" \
  --argjson r "$report_s" '{proof: "accounts", slurm: $slurm, checks: $checks, failed: $failed,
  slurmdbd_stands_still_s: {avail: $a, status: $s, report: $r}} | "RESULT \(tojson)"' -r
exit $((failed > 0))
