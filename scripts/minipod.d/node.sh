#!/usr/bin/env bash
# Process 1 of a node: node.sh NAME, in fresh net, uts, mount, ipc and pid
# namespaces. It sets the node up, starts slurmd and then only waits.

set -euo pipefail
# shellcheck source=scripts/minipod.d/net.sh
source /run/minipod/lib/net.sh

name=$1
read -r -a shape </run/minipod/shape
declare profile=plain ipv6='' "${shape[@]}"
[[ -z $ipv6 ]] || use_ipv6
index=$((10#${name#dgx}))
home=/run/minipod/nodes/$name
addr_of "$index"
mac_of "$index"
port_of "$name"

# /proc is still the outer one: this is our number in it, and 1 is the holder.
read -r pid _ </proc/self/stat
echo "$name" >/proc/sys/kernel/hostname

switch_ipv6
ip -batch - <<BATCH
link set lo up
link add eth0 address $mac type veth peer name $port netns /proc/1/ns/net
addr add $addr/$prefix dev eth0${ipv6:+ nodad}
link set eth0 up
BATCH
ip -batch /run/minipod/etc/neighbours
nsenter --net=/proc/1/ns/net ip link set "$port" master br0 up

# The node's own folders. /var/tmp is its local disk and outlives a kill; /tmp
# and /dev/shm do not.
mkdir -p "$home"/{spool,disk}
chmod 1777 "$home/disk"
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/{lock,munge,slurmd}
mount --bind /run/munge /mnt/munge
mount --bind "$home" /mnt/slurmd
mount --bind "$home/disk" /var/tmp
read -r dir </run/minipod/etc/dir
mount -n --move /mnt /run
[[ ! -d $dir ]] || mount -t tmpfs -o ro,mode=0 hidden "$dir"
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t mqueue mqueue /dev/mqueue
mount -t proc proc /proc
# A sysfs of our own, so that /sys/class/net lists our interfaces; and control groups of our own, for the steps of
# a job on several nodes have the same names.
[[ $profile != cgroup ]] || mount -n --rbind /sys/fs/cgroup /mnt
mount -t sysfs sysfs /sys 2>/dev/null || true
if [[ $profile == cgroup ]]; then
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  for controller in /mnt/*; do
    mkdir -p "$controller/$name" "/sys/fs/cgroup/${controller##*/}"
    [[ $controller != */cpuset ]] || copy_cpuset "$controller/$name"
    echo 0 >"$controller/$name/cgroup.procs"
    mount --bind "$controller/$name" "/sys/fs/cgroup/${controller##*/}"
  done
  umount -l /mnt
fi
echo "$pid" >/run/slurmd/pid

cd /
export PMIX_MCA_gds=hash
start_slurmd() {
  slurmd -D -N "$name" </dev/null >/dev/null 2>>/run/slurmd/slurmd.err &
}
# Only a child of this process can be started again: nsenter stops with its
# child when the node is frozen, and then never reaps it.
trap start_slurmd USR1
start_slurmd
# slurmd may end, but the node does not: other processes may still run.
sleep infinity &
forever=$!
while :; do
  wait "$forever" || true
done
