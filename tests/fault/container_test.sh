#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# Agents and ranks in an image that has nothing of SLURM, MPI or Holdfast, by stand-ins for pyxis and Apptainer that really
# change the root file system. Holdfast comes from a bundle on shared storage, and is copied into the nodes' memory.
# container_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[[ -e /usr/include/slurm/spank.h ]] || { echo "1..0 # SKIP no slurm/spank.h here (libslurm-dev)"; exit 77; }
# shellcheck source=tests/support/image/image.sh
source "$source/tests/support/image/image.sh"
pod_begin() {
  parts=$(mktemp -d)
  make_spank "$parts/spank.so"
  # With storage that is a network's, programs run from the nodes' memory, where pyxis lets nothing be executed by itself.
  pod_options=(--spank "$parts/spank.so" --storage fuse)
}
pod_end() { rm -rf "$parts"; }
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

run_limit=120
all_cases=(pyxis apptainer tools cancel)

bundle() {
  "$source/scripts/bundle.sh" "$(dirname "${programs[0]}")/.." "$parts/bundle.tar.gz" && tar -xzf "$parts/bundle.tar.gz" -C "$dir/shared/opt"
}
check "a bundle" bundle
make_apptainer "$dir/shared/opt/holdfast/bin/apptainer"
make_image "$home/image"
mkdir "$home/extra"
echo "shown" >"$home/extra/file"
cp "$parts/bundle.tar.gz" "$home/"
chown -R 61000:61000 "$home"/{image,extra,bundle.tar.gz}

# in_image NODE: every process of Holdfast there is in the image but the job monitor, which is on the batch host alone.
# Prints them, with their programs.
in_image() { on "$1" bash -c "$looks_at_roots"; }
# shellcheck disable=SC2016 # for the node's shell
looks_at_roots='agents=0
for process in $(pgrep -u holdfast holdfast); do
  command=$(tr "\0" " " <"/proc/$process/cmdline") && [[ -n $command ]] || continue
  image=$(cat "/proc/$process/root/etc/image-name" 2>/dev/null)
  echo "$command: $(readlink "/proc/$process/exe") ($image)"
  if [[ $command == *"holdfast run "* ]]; then
    [[ -z $image ]] || exit 1
  else
    [[ $image == "the image of the test" && ! -e /proc/$process/root/usr/bin/srun ]] || exit 1
    [[ $command != *"holdfast agent "* ]] || agents=1
  fi
done 2>/dev/null
((agents))'
# trains_in_image: on all nodes, and where ranks are, they and their PMIx server run from the memory of the node.
trains_in_image() {
  local node said
  for node in $(jq -r '.nodes[].name' "$home/$run/nodes.json"); do
    check "$run: $node: Holdfast is in the image" in_image "$node"
  done
  said=$(in_image "$(nth 1)")
  check "$run: ranks, from memory" holds "$said" "/dev/shm/holdfast-61000"
  # A check of the node's arithmetic is the same program.
  check "$run: ranks" equal "$(grep -v -e ' --probe ' <<<"$said" | grep -c '/holdfast-train (')" 2
  check "$run: their PMIx server" equal "$(grep -c '/holdfast-pmix (' <<<"$said")" 1
  check "$run: what the image lacks is said" grep -q "SLURM's tools are not in PATH here" "$home/$run/logs/agent-$(nth 1).log"
}

# shellcheck disable=SC2016 # for the node's shell
case_pyxis() {
  # The flags of pyxis among those of sbatch: the agents' step has them, the batch script is on the node itself.
  run=pyxis
  soon 180 all_idle
  job=$(submit pyxis --set checkpoint.every=0 --set drill.allowed=true -- --container-image=/shared/home/image \
    --container-mounts /shared/home/extra:/extra) || { echo "Bail out! submit failed"; exit 1; }
  hold pyxis
  trains_to 10
  trains_in_image
  local node
  node=$(nth 2)
  check "$run: the mount of the flags" on "$(nth 1)" bash -c 'cat "/proc/$(pgrep -o holdfast-train)/root/extra/file"'
  mini kill-node "$node"
  ends_like_the_undisturbed
  came_back_from 2 peer
  mini revive-node "$node"
}

case_apptainer() {
  start_held apptainer --set container.runtime=apptainer --set container.image=/shared/home/image
  mid_run 10
  trains_in_image
  local node
  node=$(nth 2)
  # The guardian starts another agent, and the ranks live on.
  signal_agent KILL "$(nth 1)"
  mini kill-node "$node"
  ends_like_the_undisturbed
  mini revive-node "$node"
}

case_tools() {
  # With SLURM's tools in the image a leader ends the job in place of a batch script that is lost.
  local mounts='"/etc/slurm", "/etc/passwd:/etc/passwd:ro", "/run/munge", "/usr/lib/x86_64-linux-gnu"' tool node
  for tool in squeue scontrol srun sinfo scancel; do mounts+=", \"/usr/bin/$tool\""; done
  start_held tools --set container.image=/shared/home/image --set "container.mounts=[$mounts]"
  trains_to 10
  node=$(mini exec scontrol show job "$job" | sed -n 's/.*BatchHost=//p')
  mini kill-node "$node"
  check "$run: another leads" soon 60 test -e "$home/$run/term/0002"
  ends_like_the_undisturbed 0
  check "$run: nothing is missing" equal "$(grep -h "SLURM's tools" "$home/$run/logs/"agent-*.log)" ""
  mini revive-node "$node"
}

case_cancel() {
  # slurmstepd's SIGTERM reaches every process of a step: the agents must know it for that one, although a runtime stands
  # between, and not ask the ranks again. And Holdfast is what the job has unpacked in /tmp of its nodes; the image has
  # another /tmp.
  # shellcheck disable=SC2016 # for the image's shell
  printf '%s\n' 'cd "$HOLDFAST_RUN_DIR"' 'trap "echo once >>asked-$RANK; sleep 2; exit 0" TERM' 'touch "up-$RANK"' \
    'while :; do sleep 0.1; done' >"$home/extra/asked.sh"
  local runtime
  for runtime in pyxis apptainer; do
    start "cancel_$runtime" --set "container.runtime=$runtime" --set container.image=/shared/home/image \
      --set 'container.mounts=["/shared/home/extra:/extra:ro"]' --set 'rank.command=["sh", "/extra/asked.sh"]' \
      --set supervise.stop_s=1 --set slurm.bundle=/shared/home/bundle.tar.gz
    check "$run: ranks are up" soon 120 all_up
    check "$run: agents of the job's bundle" holds "$(in_image "$(nth 1)")" "/tmp/holdfast-$job-"
    mini exec scancel "$job"
    ends_as drained 75
    check "$run: each rank was asked once" equal "$(cat "$home/$run"/asked-*)" $'once\nonce\nonce\nonce'
  done
}
all_up() { (($(find "$home/$run" -name 'up-*' | wc -l) == 4)); }

run_cases "$@"
