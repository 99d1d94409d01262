# Names and addresses, in one place. Sourced, never run.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2317  # used by the scripts that source it

login_addr=10.77.0.1
login_mac=02:00:0a:4d:00:01
prefix=16

# Each sets its result in a variable of its own name; subshells for 127 nodes
# would take half of the time of `up`.
name_of() { printf -v name 'dgx%03d' "$1"; }
addr_of() { addr=10.77.$((1 + ($1 - 1) / 200)).$((1 + ($1 - 1) % 200)); }
mac_of() {
  printf -v mac '02:00:0a:4d:%02x:%02x' \
    $((1 + ($1 - 1) / 200)) $((1 + ($1 - 1) % 200))
}
port_of() { port=v${1#dgx}; }

# After up --ipv6.
use_ipv6() {
  login_addr=fd77::1 prefix=64
  addr_of() { printf -v addr 'fd77::1:%x' "$1"; }
}

# Of the interfaces to come. An address outlives that its link is down, as one of IPv4 does.
switch_ipv6() {
  if [[ -z $ipv6 ]]; then
    echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6 2>/dev/null || true
  else
    echo 0 >/proc/sys/net/ipv6/conf/default/disable_ipv6
    echo 1 >/proc/sys/net/ipv6/conf/default/keep_addr_on_down
  fi
}

# A new cpuset takes no process before it has processors and memory.
copy_cpuset() {
  cat "$1/../cpuset.cpus" >"$1/cpuset.cpus"
  cat "$1/../cpuset.mems" >"$1/cpuset.mems"
}
