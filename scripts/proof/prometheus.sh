#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# What `holdfast metrics --openmetrics` writes, in a real Prometheus: a job on a minipod trains on a mixture of two token
# files and loses a node; its textfile is served by HTTP as node_exporter would, and scraped; then
#   - promtool takes the text without a complaint, the rules of packaging/grafana/alerts.yml and their tests;
#   - every query of packaging/grafana/dashboard.json has a value;
#   - Prometheus evaluates all of the rules;
#   - a further `holdfast metrics` that writes to a full disk, and one that is stopped, are nothing to the job.
# This machine has no GPU: values of DCGM, and the used memory of a device, are made up here, under the names of dcgm-exporter.
# Needs prometheus and promtool in PATH (Debian's package prometheus), and root: scripts/proof/prometheus.sh BUILD
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
(($# == 1)) || { sed -n '3,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
for program in prometheus promtool; do
  command -v "$program" >/dev/null || { echo "prometheus.sh: there is no $program here. Install Debian's package prometheus?" >&2; exit 2; }
done
build=$(realpath "$1")
scratch=$(mktemp -d "${TMPDIR:-/tmp}/prometheus-proof.XXXXXX")
ours=() # processes
pod_end() {
  ((${#ours[@]} == 0)) || kill "${ours[@]}" 2>/dev/null
  rm -rf "$scratch"
}
# shellcheck source=tests/support/fault.sh
set -- "$build/launcher/holdfast" "$build/src/train/holdfast-train" "$build/src/tools/cli/holdfast-tool"
source "$source/tests/support/fault.sh"

check "promtool: the rules" promtool check rules "$source/packaging/grafana/alerts.yml"
check "promtool: the rules fire when they should" promtool test rules "$source/packaging/grafana/alerts_test.yml"

# A second source: other text, the same tokenizer.
cp /usr/share/common-licenses/Artistic "$home/other.txt"
chown 61000 "$home/other.txt"
mini exec holdfast data prepare --input /shared/home/other.txt --output /shared/home/other.bin --tokenizer /shared/home/tokens.model >/dev/null ||
  { echo "Bail out! no second source"; exit 1; }
start_held watched --set data.tokens= --set 'data.mixture=["/shared/home/tokens.bin 3", "/shared/home/other.bin 1"]' \
  --set data.validation=/shared/home/other.bin --set eval.every=1 --set eval.samples=2 --set train.peak_tflops=0.01
mid_run 12

# follow NAME OPTION...: `holdfast metrics` beside the run, in the background.
follow() {
  local name=$1
  shift
  mini_forever exec holdfast metrics "/shared/home/$run" -f "$@" >"$scratch/$name.log" 2>&1 &
  ours+=($!)
}
mini_forever() { exec "$pod" "$@"; }
mkdir -p "$home/prom" "$home/full"
chown 61000 "$home/prom"
mini exec --root mount -t tmpfs -o size=16k,mode=1777 tmpfs /shared/home/full
follow prom --openmetrics "/shared/home/prom/$run.prom"
follow full --tensorboard /shared/home/full/tb
follow stopped --tensorboard /shared/home/stopped
written() { [[ -s $home/prom/$run.prom ]]; }
check "the textfile is there" soon 30 written
stopped_there() { [[ -n $(mini exec pgrep -f 'metrics .*home/stopped') ]]; }
check "a third one runs" soon 30 stopped_there
mini exec --root pkill -STOP -f 'metrics .*home/stopped'

# As node_exporter serves it; GPUs as dcgm-exporter does.
python3 - "$home/prom" "$scratch/port" "$run" <<'PYTHON' &
import http.server, pathlib, sys
folder, port_file, run = sys.argv[1:]
GPU = ["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_XID_ERRORS",
       "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_ROW_REMAP_FAILURE"]
made_up = "".join(f'{name}{{gpu="0",Hostname="n1",hpc_job="7"}} 0.5\n' for name in GPU)
made_up += f'holdfast_device_memory_peak_bytes{{run="{run}",origin="made up"}} 1e9\n'

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = "".join(file.read_text() for file in pathlib.Path(folder).glob("*.prom")) + made_up
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *words):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
pathlib.Path(port_file).write_text(str(server.server_port))
server.serve_forever()
PYTHON
ours+=($!)
check "the text is served" soon 30 test -s "$scratch/port"
cat >"$scratch/prometheus.yml" <<YAML
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [$source/packaging/grafana/alerts.yml]
scrape_configs: [{ job_name: node, static_configs: [{ targets: ["127.0.0.1:$(cat "$scratch/port")"] }] }]
YAML
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
prometheus --config.file="$scratch/prometheus.yml" --storage.tsdb.path="$scratch/data" --web.listen-address="127.0.0.1:$port" \
  --log.level=warn >"$scratch/prometheus.log" 2>&1 &
ours+=($!)

node=$(nth 2)
mini kill-node "$node"
check "$run: another attempt" soon 120 training "$run" 2
check "promtool: no complaint about the text" bash -c "promtool check metrics <'$home/prom/$run.prom'"
copied() { cp "$home/prom/$run.prom" "$scratch/last.prom" && grep -q 'cause="node lost"' "$scratch/last.prom"; }
check "the textfile tells of the lost node" soon 60 copied

# ask: every query of the dashboard; a line for each that has no value.
cat >"$scratch/ask.py" <<'PYTHON'
import json, math, sys, urllib.parse, urllib.request
port, run, dashboard = sys.argv[1:]

def get(path, **words):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(words)}", timeout=10) as answer:
        return json.load(answer)["data"]

panels = [p for p in json.load(open(dashboard))["panels"] if "targets" in p]
bare, queries = [], 0
for panel in panels:
    for target in panel["targets"]:
        query = target["expr"].replace("$run", run).replace("$hpc_job", ".*")
        queries += 1
        found = get("query", query=query)["result"]
        if not any(math.isfinite(float(series["value"][1])) for series in found):
            bare.append(f"{panel['title']}: {query}")
rules = [rule for group in get("rules")["groups"] for rule in group["rules"]]
sick = [rule["name"] + ": " + rule.get("lastError", "") for rule in rules if rule["health"] != "ok"]
for line in bare + sick:
    print("no value:", line)
firing = sorted(rule["name"] for rule in rules if rule.get("state") == "firing")
print(f"{len(panels)} panels, {queries} queries, {len(rules)} rules; firing: {' '.join(firing) or 'none'}")
sys.exit(bool(bare or sick or not rules))
PYTHON
ask() { python3 "$scratch/ask.py" "$port" "$run" "$source/packaging/grafana/dashboard.json" >"$scratch/asked" 2>&1; }
check "every query has a value, and every rule is evaluated" soon 60 ask
sed 's/^/# /' "$scratch/asked"
full() { grep -q 'trying again' "$scratch/full.log"; }
check "the full disk is said" soon 60 full
sed 's/^/# /' "$scratch/full.log"

mini revive-node "$node"
mini exec --root umount /shared/home/full
ends_as "done" 0
textfile_gone() { [[ ! -e $home/prom/$run.prom ]]; }
check "the textfile goes with the run" soon 60 textfile_gone
check "the one that was stopped did not hold up the run" stopped_there
mini exec --root pkill -CONT -f 'metrics .*home/stopped'
events_complete() { find "$home/stopped" -name 'events.out*' -size +10k | grep -q .; }
check "and writes all when it goes on" soon 60 events_complete
conclude
