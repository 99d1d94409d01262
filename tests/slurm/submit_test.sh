#!/usr/bin/env bash
# shellcheck disable=SC2317 # check and soon call most functions
# Test `holdfast submit` against a real SLURM: submit_test.sh HOLDFAST.
# Speaks TAP; exits 77 when there is no SLURM here to test with.

set -uo pipefail

holdfast=$(realpath "$1")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
pod=$source/scripts/minipod
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
need_cluster "$holdfast"

dir=$(mktemp -d /var/tmp/submit-test.XXXXXX)
export HOLDFAST_MINIPOD_DIR=$dir
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

mini() { timeout 120 "$pod" "$@"; }
# Ranks of another program: nothing is trained here.
submit() { mini exec holdfast submit quickstart --set 'rank.command=["/bin/sleep","600"]' "$@"; }
name_of() { mini exec squeue -h -a -t all -j "$1" -o %j; }
state_of() { mini exec squeue -h -a -t all -j "$1" -o %T; }
in_state() { equal "$(state_of "$1")" "$2"; }

mini up --nodes 4 || { echo "Bail out! no minipod"; exit 1; }
home=$dir/shared/home
mkdir -p "$dir/shared/opt/holdfast/bin" "$dir/shared/opt/holdfast/share/holdfast"
install -m 0755 "$holdfast" "$dir/shared/opt/holdfast/bin/holdfast"
cp -r "$source/configs" "$dir/shared/opt/holdfast/share/holdfast/"

# ------------------------------------------------------------ names and paths --

# shellcheck disable=SC2016  # it must not expand
nasty=$'a b \'c\' "d" $(touch /shared/home/evaluated) `touch /shared/home/evaluated` | ; & * \\ #e'
run="/shared/home/r u'n \"1\" \$(touch evaluated) 100%j"
said=$(submit --parsable -J "$nasty" --set "run.dir=$run" -- --hold --comment 'x y' 2>"$dir/err")
check "submit succeeds with a name and a path that a shell would trip over" equal "$? $(<"$dir/err")" "0 "
check "--parsable prints the job id and nothing else" grep -qx '[0-9]*' <<<"$said"
job=$said
check "the job's name arrives as it was typed" equal "$(name_of "$job")" "$nasty"
check "so does the script's path" equal "$(mini exec squeue -h -j "$job" -o %o)" "$run/job.sbatch"
check "flags after -- arrive" equal "$(mini exec squeue -h -j "$job" -o %k)" "x y"
check "the job asks for active and spare nodes" equal "$(mini exec squeue -h -j "$job" -o %D)" 4
folder="$home/r u'n \"1\" \$(touch evaluated) 100%j"
check "the run directory is closed to others" equal "$(stat -c %a "$folder")" 750
check "so is the secret" equal "$(stat -c %a "$folder/secret")" 600
check "the run directory knows its owner" grep -q "\"job_id\":$job," "$folder/owner.json"

check "a second submit into it is a usage error" equal "$(submit --set "run.dir=$run" 2>"$dir/err"; echo $?)" 2
check "which names the job" holds "$(<"$dir/err")" "belongs to job $job"
mini exec scancel "$job"
soon 60 in_state "$job" CANCELLED
next=$(submit --parsable --set "run.dir=$run" --set 'rank.command=["sleep","600"]')
check "once it is cancelled, the directory can be used again" test "$next" -gt "$job"
check "the script starts and writes its log where it should" soon 60 test -e "$folder/logs/job-$next.log"
check "nothing was evaluated" test ! -e "$home/evaluated" -a ! -e "$folder/evaluated"
touch "$dir/then"
mini exec scancel "$next"

# -------------------------------------------------------- what SLURM refuses --

check "an unknown partition is a usage error" equal "$(submit -p nowhere --set run.dir=/shared/home/p 2>"$dir/err"; echo $?)" 2
check "in SLURM's words" holds "$(<"$dir/err")" "Invalid partition name specified"
check "and the directory is free again" test -e "$home/p/config.toml" -a ! -e "$home/p/owner.json"
check "--dry-run needs no SLURM and makes nothing" bash -c "
  '$pod' exec env PATH=/shared/opt/holdfast/bin holdfast submit quickstart --set 'rank.command=[\"/bin/sleep\"]' --set run.dir=/shared/home/dry --dry-run | grep -q '^#SBATCH --nodes=4' && [[ ! -e '$home/dry' ]]"

# ------------------------------------------------------- no slurmctld, later --

# A job id that slurmctld has not saved (it saves every 5 s) is used again.
saved() { [[ $dir/slurmctld/state/job_state -nt $dir/then ]]; }
check "slurmctld has saved its state" soon 60 saved
mini kill-slurmctld
begin=$SECONDS
check "without slurmctld submit says 'try again' (75)" equal "$(submit --set run.dir=/shared/home/later 2>"$dir/err"; echo $?)" 75
check "at once" test $((SECONDS - begin)) -lt 30
check "in words" holds "$(<"$dir/err")" "slurmctld"
check "and leaves nothing behind" test ! -e "$home/later"
mini start-slurmctld
check "with slurmctld back, the same command works" soon 60 submit --parsable --set run.dir=/shared/home/later -- --hold

conclude
