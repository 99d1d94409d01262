#!/usr/bin/env bash
# In a mount namespace of a node's own, outside of its other namespaces:
# storage.sh HOME COMMAND... With storage=fuse, /shared becomes a file system
# that a server of this node offers, and with data=fuse /data/fuse another one;
# then COMMAND replaces this script.

set -euo pipefail

home=$1
shift
read -r -a shape </run/minipod/shape
declare storage=bind data='' "${shape[@]}"

# serve FOLDER PLACE NAME: the process number of the server goes to HOME/NAME.
serve() {
  local tries
  umount "$2"
  # No time-out of names and attributes: every call comes to the server.
  setsid bindfs -f -o attr_timeout=0,entry_timeout=0,negative_timeout=0 \
    "$1" "$2" </dev/null &
  echo $! >"$home/$3"
  for ((tries = 0; tries < 100; tries++)); do
    [[ $(stat -f -c %T "$2") != fuse* ]] || return 0
    sleep 0.05
  done
  echo "bindfs does not offer $2" >&2
  exit 1
}

[[ $storage != fuse && $data != *fuse* ]] || mount --make-rprivate /
[[ $storage != fuse ]] || serve /run/minipod/shared /shared storage
[[ $data != *fuse* ]] || serve /run/minipod/data/fuse /data/fuse data
exec "$@"
