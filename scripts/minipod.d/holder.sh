#!/usr/bin/env bash
# Process 1 of the outer namespaces: holder.sh DIR.
#
# It builds its own root (the machine's directories, but private /etc, /dev,
# /run, /tmp, /proc and /sys, and /shared), changes into it and then only
# waits. When it ends, the kernel ends all its processes and unmounts the rest.

set -euo pipefail

dir=$1
here=$dir/lib
# shellcheck source=scripts/minipod.d/net.sh
source "$here/net.sh"

# /proc is still that of the machine, so this is our process number outside.
read -r stat </proc/self/stat
pid=${stat%% *}
stat=${stat##*) }
read -r -a field <<<"$stat"
echo "$pid ${field[19]}" >"$dir/holder"

declare root='' profile=plain data=''
read -r -a shape <"$dir/shape"
declare "${shape[@]}"

exec 8<"$dir"
keep=/proc/self/fd/8

build_root() {
  local new=$1 entry
  for entry in "$root"/*; do
    local name=${entry##*/}
    case $name in
      dev | etc | lost+found | proc | run | shared | sys | tmp) continue ;;
      data) [[ -z $data ]] || continue ;;
    esac
    if [[ -L $entry ]]; then
      cp -a "$entry" "$new/$name"
    elif [[ -d $entry ]]; then
      mkdir "$new/$name"
      mount --rbind "$entry" "$new/$name"
    else
      touch "$new/$name"
      mount --bind "$entry" "$new/$name"
    fi
  done

  mkdir "$new"/{dev,proc,run,shared,sys,tmp}
  mount -t proc proc "$new/proc"
  # A sysfs of our own, so that /sys/class/net lists our interfaces.
  mount -t sysfs sysfs "$new/sys" 2>/dev/null || mount --rbind /sys "$new/sys"
  [[ $profile != cgroup ]] || build_cgroups "$new/sys/fs/cgroup"
  mount -t tmpfs -o mode=755 tmpfs "$new/run"
  mount -t tmpfs -o mode=1777 tmpfs "$new/tmp"
  mkdir "$new"/run/{lock,minipod,munge,slurmctld,accounting}
  mount --bind "$keep" "$new/run/minipod"
  # slurmctld and the database are not root and DIR may be closed to them.
  mount --bind "$keep/slurmctld" "$new/run/slurmctld"
  mount --bind "$keep/accounting" "$new/run/accounting"
  mount --bind "$keep/shared" "$new/shared"
  [[ -z $data ]] || build_data "$new/data"

  build_dev "$new/dev"
  build_etc "$new/etc"
}

# A node's own groups are made in these by node.sh.
build_cgroups() {
  local controller group
  group=minipod-$(cksum <<<"$dir" | cut -d' ' -f1)
  mount -t tmpfs -o mode=755 tmpfs "$1"
  for controller in cpuset memory devices freezer; do
    mkdir -p "$1/$controller" "/sys/fs/cgroup/$controller/$group"
    [[ $controller != cpuset ]] || copy_cpuset "/sys/fs/cgroup/$controller/$group"
    mount --bind "/sys/fs/cgroup/$controller/$group" "$1/$controller"
  done
}

# File systems beside /shared. Nodes see that of a server of their own at /data/fuse (storage.sh).
build_data() {
  mkdir "$1"
  mount -t tmpfs -o mode=755 tmpfs "$1"
  mkdir "$1"/{ext4,fuse}
  mount --bind "$keep/data/fuse" "$1/fuse"
  [[ $data != *ext4* ]] || mount -n -o loop "$keep/data/image" "$1/ext4"
  chmod 1777 "$1"/{ext4,fuse}
}

build_dev() {
  local dev=$1 entry i
  mount -t tmpfs -o mode=755 tmpfs "$dev"
  mkdir "$dev"/{pts,shm,mqueue,minipod}
  for entry in null zero full random urandom tty fuse; do
    [[ ! -e /dev/$entry ]] || cp -a "/dev/$entry" "$dev/"
  done
  for entry in /dev/nvidia* /dev/infiniband /dev/dri; do
    [[ ! -e $entry ]] || cp -a "$entry" "$dev/"
  done
  ln -s /proc/self/fd "$dev/fd"
  ln -s fd/0 "$dev/stdin"
  ln -s fd/1 "$dev/stdout"
  ln -s fd/2 "$dev/stderr"
  ln -s pts/ptmx "$dev/ptmx"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$dev/shm"
  mount -t mqueue mqueue "$dev/mqueue"
  # SLURM wants a character device for each GPU and never opens it. Numbers that no driver has: with profile
  # cgroup, processes are kept from those that their job has not got.
  for ((i = 0; i < 64; i++)); do
    mknod -m 0666 "$dev/minipod/gpu$i" c 240 "$i"
  done
}

# A copy and not bind mounts: no file has to exist on the machine, and none of
# its files can be changed.
build_etc() {
  local etc=$1
  cp -a "$root/etc" "$etc"
  cp "$keep/etc/hosts" "$etc/hosts"
  rm -f "$etc/resolv.conf"
  rm -rf "$etc/slurm"
  mkdir "$etc/slurm"
  mount --bind "$keep/etc/slurm" "$etc/slurm"
  sed -i -E '/^(holdfast|intruder):/d' "$etc/passwd" "$etc/group"
  echo 'holdfast:x:61000:61000:minipod user:/shared/home:/bin/bash' >>"$etc/passwd"
  echo 'holdfast:x:61000:' >>"$etc/group"
  echo 'intruder:x:61001:61001:another user:/tmp:/bin/bash' >>"$etc/passwd"
  echo 'intruder:x:61001:' >>"$etc/group"
  if ! grep -q '^slurm:' "$etc/passwd"; then
    echo 'slurm:x:64030:64030::/nonexistent:/usr/sbin/nologin' >>"$etc/passwd"
    echo 'slurm:x:64030:' >>"$etc/group"
  fi
  sed -i -E 's/^(passwd|group|hosts):.*/\1: files/' "$etc/nsswitch.conf" || true
  # For steps that are started with an empty environment.
  mkdir -p "$etc/openmpi"
  printf 'btl_tcp_if_include = eth0\noob_tcp_if_include = eth0\n' \
    >>"$etc/openmpi/openmpi-mca-params.conf"
}

# -n: until /run is ours, mount would create /run/mount on the machine.
mount -n --make-rprivate /
# /run is the only directory that is not below another bind mount.
mount -n -t tmpfs -o mode=755 minipod /run
build_root /run
echo login >/proc/sys/kernel/hostname
cd /run
mkdir .machine
pivot_root . .machine
cd /
umount -l /.machine
rmdir /.machine
exec 8<&-

touch /run/minipod/holder.ready
trap '' HUP INT TERM
# bash waits for every child, also for inherited ones.
while :; do
  sleep infinity &
  wait $!
done
