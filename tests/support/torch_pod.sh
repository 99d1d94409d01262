# Sourced by the proofs that run PyTorch programs on a minipod, after scripts/torch_env.sh and with the arguments of
# tests/support/fault.sh, which it sources: the nodes get PyTorch, `torch_packages`, the client, and the examples, each also without its protection.
# shellcheck shell=bash disable=SC2154,SC2034 # source; torch_throw_away
torch_throw_away=''
pod_end() { rm -rf ${torch_throw_away:+"$torch_throw_away"}; }
torch_env
for package in ${torch_packages[@]+"${torch_packages[@]}"}; do
  "$torch_python" -c "import $package" 2>/dev/null || "$torch_python" -m pip install --quiet --no-cache-dir "$package" || die "no $package here"
done
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

# The nodes see no other folder of this machine. Links, where the file system allows, as it is gigabytes.
share() { cp -al "$1" "$dir/shared/$2" 2>/dev/null || cp -r "$1" "$dir/shared/$2"; chmod -R a+rX "$dir/shared/$2"; }
# What a user has in the shell: python3 with PyTorch and the client. Gloo is told its interface, as Open MPI is by the minipod.
shell=("PYTHONPATH=/shared/torch:/shared/client" PYTHONDONTWRITEBYTECODE=1 GLOO_SOCKET_IFNAME=eth0)
share "$("$torch_python" -c 'import site; print(site.getsitepackages()[0])')" torch
base=$("$torch_python" -c 'import sys; print(sys.base_prefix)')
if [[ $base != /usr ]]; then
  share "$base" python
  shell+=(PYTHONHOME=/shared/python LD_LIBRARY_PATH=/shared/python/lib "PATH=/shared/python/bin:/shared/opt/holdfast/bin:/usr/bin:/bin:/usr/sbin:/sbin")
fi
mkdir -p "$dir/shared/client"
cp -r "$source/client/python/holdfast" "$dir/shared/client/"
chmod -R a+rX "$dir/shared/client"

marker='(#|//) hf$' # of a line that protects
# add_example FILE: to the home of the cluster's user, and without its protection as plain_FILE.
add_example() {
  cp "$1" "$home/${1##*/}"
  grep -Ev "$marker" "$1" >"$home/plain_${1##*/}"
  chmod a+r "$home/"*"${1##*/}"
}
attempts() { events "$run" | jq -s 'map(select(.event == "attempt_planned")) | length'; }
has_attempts() { (($(attempts) >= $1)); }
newest_durable() { events "$run" | jq -s 'map(select(.event == "checkpoint_durable").step) | max // -1'; }
# What rank 0 said last: the word after "step" or "digest".
said() { sed -n "s/.*\<$1 \([0-9a-f]*\).*/\1/p" "$home/$run/logs/attempt-$(printf %04d "$(attempts)")/rank-00000.log" | tail -n 1; }
# Steps that rank 0 has reported.
now_at() { tail -n 1 "$home/$run/logs/metrics.jsonl" | jq -s '.[0].step // 0'; }
reaches() { (($(now_at) >= $1)); }
holds_still() {
  local now
  now=$(now_at)
  sleep 2
  [[ $(now_at) == "$now" ]]
}
# SLURM may have given up on a node that is back.
all_idle_again() {
  local node
  for node in $(mini exec sinfo -h -N -t down,drain -o %N); do mini exec --root scontrol update "nodename=$node" state=resume; done
  all_idle
}
