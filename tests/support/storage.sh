# Sourced, after pod.sh, by what makes the storage of a minipod hang.
# shellcheck shell=bash

# The threads that must never wait for storage, and do: the loop of an agent or of the job monitor, the training thread of a
# rank. Each is the first thread of its process. (One that has just come to a lock of the kernel is looked at twice. A check of
# a node is a process of its own, which its agent ends after 15 s, and may wait.)
waiting() {
  # shellcheck disable=SC2016 # for the shell of the cluster
  mini exec --root bash -c '
    for pid in $(pgrep -x "holdfast|holdfast-pmix|holdfast-train"); do
      for look in 1 2; do
        [[ $(cat "/proc/$pid/wchan" 2>/dev/null) =~ fuse|request_wait|folio_wait ]] || continue 2
        sleep 0.05
      done
      [[ $(tr "\0" " " 2>/dev/null <"/proc/$pid/cmdline") =~ " --probe "|" doctor " ]] && continue
      echo "$(cat "/proc/$pid/comm") ($(tr "\0" " " <"/proc/$pid/cmdline" | cut -c1-120)): $(cat "/proc/$pid/wchan")"
    done'
}
