// to_text() writes, from top to bottom: one line for the whole, the table of nodes with a row for each
// scalable unit, the table of devices of slot 0 (all nodes are alike) where there are NICs, then paragraphs
// with a label in the margin, each made by a function that returns its lines. A paragraph without lines is
// not written. Of a program that does not train as set, only the image, the program, what the run survives,
// and the rest are known.
//
// Nothing is planned here: all facts are the Plan's, but for sums and ratios of them. Texts of users that
// could break a line or a terminal are written in TOML's spelling (spelled()).
#include "launcher/plan/plan_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launcher/plan/units.hpp"
#include "slurm/hostlist.hpp"
#include "src/base/printable.hpp"
#include "src/base/units.hpp"
#include "src/config/bind.hpp"

namespace holdfast::launcher {
namespace {

using Row = std::vector<std::string>;

/// Columns as wide as their widest cell, two spaces apart, indented; the first row is the header.
std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> width;
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c == width.size()) width.push_back(0);
      width[c] = std::max(width[c], row[c].size());
    }
  std::string out;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t c = 0; c < row.size(); ++c) line += fmt::format(" {:<{}} ", row[c], width[c]);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string range(int first, int last) {
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

/// A text that would break the line or the terminal, in TOML's spelling.
std::string spelled(const std::string& text) {
  return printable_line(text) == text ? text : config::spell(text);
}

/// `label` in the margin, then lines of text under each other.
std::string paragraph(const std::string& label, const std::vector<std::string>& lines) {
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i)
    out += fmt::format("  {:<12}{}\n", i == 0 ? label : "", lines[i]);
  return out;
}

std::string node_table(const Plan& p) {
  std::vector<Row> rows = {{"scalable unit", "active nodes", "slots", "ranks", "spares"}};
  std::vector<std::string> units;
  for (const auto& n : p.nodes)
    if (std::find(units.begin(), units.end(), n.scalable_unit) == units.end())
      units.push_back(n.scalable_unit);
  for (const auto& unit : units) {
    std::vector<std::string> active, spares;
    std::string host;
    int first = -1, last = -1;
    for (const auto& n : p.nodes) {
      if (n.scalable_unit != unit) continue;
      (n.slot < 0 ? spares : active).push_back(n.name);
      if (n.slot < 0 && n.batch_host) host = n.name;
      if (n.slot < 0) continue;
      if (first < 0) first = n.slot;
      last = n.slot;
    }
    std::string spare_text = slurm::compress(spares);
    if (!host.empty()) spare_text += spares.size() == 1 ? " (batch host)" : " (batch host " + host + ")";
    const bool none = first < 0;
    rows.push_back({unit.empty() ? "-" : unit, slurm::compress(active), none ? "" : range(first, last),
                    none ? "" : range(first * p.ranks_per_node, (last + 1) * p.ranks_per_node - 1),
                    spare_text});
  }
  return table(rows);
}

bool has_nics(const Plan& p) {
  return std::any_of(p.ranks.begin(), p.ranks.end(), [](const PlannedRank& r) { return !r.nic.empty(); });
}

std::string device_table(const Plan& p) {
  if (!has_nics(p)) return "";
  std::vector<Row> rows = {{"local rank", "GPU", "NIC", "NUMA", "rail"}};
  for (const auto& r : p.ranks)
    if (r.slot == 0)
      rows.push_back({std::to_string(r.local), std::to_string(r.gpu), r.nic, std::to_string(r.numa),
                      std::to_string(r.rail)});
  return "\n" + table(rows);
}

std::vector<std::string> sharding(const Plan& p) {
  const std::string name = config::name_of(p.strategy);
  if (p.group_size == 1)
    return {
        fmt::format("{}: every rank holds all of the state, {}", name, count_text(p.replicas(), "replica"))};
  std::vector<std::string> out = {fmt::format(
      "{}: {} of {} neighbouring ranks{}, {}", name, count_text(p.replicas(), "group"), p.group_size,
      p.group_size == p.ranks_per_node ? " (a node)" : "", count_text(p.replicas(), "replica"))};
  if (p.strategy == config::Strategy::shard_grad_op)
    out.push_back("blocks stay gathered from the forward to the backward pass");
  if (p.replicas() > 1) {
    const auto peers = p.replica_group(0);
    std::string list;
    for (std::size_t i = 0; i < std::min<std::size_t>(peers.size(), 3); ++i)
      list += (i ? ", " : "") + std::to_string(peers[i]);
    out.push_back(
        fmt::format("ranks {}{} hold the same slices{}", list, peers.size() > 3 ? ", ..." : "",
                    has_nics(p) && p.group_size % p.ranks_per_node == 0 ? " and share a rail" : ""));
    if (p.strategy == config::Strategy::hfsdp)
      out.push_back(
          "each of them updates its part of these slices, and has the optimizer state of that part");
  }
  return out;
}

/// "fp32", or what is not.
std::string precision(const config::PrecisionPolicy& types) {
  const auto narrow = [](config::Precision type) { return type != config::Precision::fp32; };
  std::string out = narrow(types.parameters) ? "bf16, fp32 master weights" : "fp32";
  if (narrow(types.moments)) out += ", bf16 moments";
  if (narrow(types.reduce)) out += ", gradients sent in bf16";
  return out;
}

std::vector<std::string> memory(const Plan& p) {
  const auto& m = p.memory;
  const auto& s = m.state;
  const auto copies = s.copies == 0 ? ""
                                    : fmt::format(" (and {} as {})", size_text(s.copies),
                                                  config::name_of(p.precision.parameters));
  const auto frozen = s.frozen == 0 ? "" : ", frozen " + size_text(s.frozen);
  return {fmt::format("parameters {}{}, optimizer {}, gradient sums {}{}", size_text(s.parameters), copies,
                      size_text(s.optimizer), size_text(s.accumulators), frozen),
          fmt::format("gathered units {}, gradients of a micro-batch {}, activations about {}{}",
                      size_text(m.gathered), size_text(m.gradients), size_text(m.activations),
                      m.attention ? ", scratch of attention " + size_text(m.attention) : ""),
          fmt::format("together about {}{}{}{}", size_text(m.needed()),
                      m.capacity ? " of " + size_text(m.capacity) : "",
                      m.offloaded ? ", the optimizer in the node's memory" : "",
                      m.reserved ? ", with " + size_text(m.reserved) + " of driver and libraries" : "")};
}

/// "0.412", "3.21", "45.6", "123": three digits.
std::string three_digits(double n) {
  return n >= 100 ? grouped_text(std::llround(n)) : fmt::format("{:.{}f}", n, n >= 10 ? 1 : n >= 1 ? 2 : 3);
}

std::vector<std::string> speed(const Forecast& f) {
  if (!f.known()) return {"not foreseen: " + f.missing};
  const StepRange& s = f.step;
  const double each = f.tokens_s_gpu(s.typical);
  std::string parts;
  for (const NamedPart& part : step_parts)
    if (const double seconds = f.parts.*part.seconds; seconds >= 0.015 * s.typical)
      parts += fmt::format("{}{} {:.0f} %", parts.empty() ? "" : ", ", part.name, 100 * seconds / s.typical);
  return {fmt::format("about {} s a step ({} to {}) on {} GPUs, not measured", three_digits(s.typical),
                      three_digits(s.fast), three_digits(s.slow), f.gpu),
          fmt::format("{} tokens/s a GPU, {} in all, MFU {:.0f} % ({:.0f} % with all of attention)",
                      three_digits(each), three_digits(each * f.world), 100 * f.mfu(f.flops_causal),
                      100 * f.mfu(f.flops_palm)),
          parts};
}

/// "750 steps: 3 epochs of 250 steps (2,000 sequences)"
std::string length(const Plan& p) {
  if (p.steps == 0) return "as many steps as train.epochs make of the data";
  std::string out = grouped_text(p.steps) + (p.steps == 1 ? " step" : " steps");
  if (p.samples_of_epoch == 0) return out;
  const double samples = static_cast<double>(p.steps) * p.global_batch;
  const double epochs = samples / static_cast<double>(p.samples_of_epoch);
  return out + fmt::format(": {:.4g} epochs of {:.6g} steps ({} sequences)", epochs,
                           static_cast<double>(p.steps) / epochs, grouped_text(p.samples_of_epoch));
}

/// The whole run, and its time where its steps are foreseen.
std::vector<std::string> run(const Plan& p) {
  std::vector<std::string> out{length(p)};
  const Forecast& f = p.forecast;
  if (!f.known() || p.steps == 0) return out;
  out.push_back(fmt::format("about {} hours ({} to {}), {} GPU-hours", three_digits(f.hours(f.step.typical)),
                            three_digits(f.hours(f.step.fast)), three_digits(f.hours(f.step.slow)),
                            three_digits(f.gpu_hours())));
  out.push_back(fmt::format("at most {} kWh of GPUs, {} kWh of nodes", three_digits(f.kwh_of_gpus()),
                            three_digits(f.kwh_of_nodes())));
  out.push_back("without checkpoints, lost nodes, the queue, and cooling");
  return out;
}

std::vector<std::string> checkpoint(const Plan& p) {
  std::string text =
      size_text(p.checkpoint_bytes) +
      (p.checkpoint_every > 0 ? " every " + count_text(p.checkpoint_every, "step") : " at the end only");
  if (p.checkpoint_floor_s > 0)
    text +=
        fmt::format("; not faster than {:.2f} s, at the whole file system's bandwidth", p.checkpoint_floor_s);
  if (p.local.folder.empty()) return {text, "no local level"};
  const auto each = [](int every) { return every == 1 ? "each step" : "every " + count_text(every, "step"); };
  std::string local = fmt::format("snapshots in {} of each node {}", p.local.folder, each(p.local.every));
  if (p.local.partner_every > 0)
    local += fmt::format(", copied to another node {}", each(p.local.partner_every));
  return {text, fmt::format("{}: {} a node", local, size_text(p.local.node_bytes))};
}

std::vector<std::string> survives(const Plan& p) {
  auto out = p.survival.says;
  if (p.survival.hours_between_losses > 0)
    out.push_back(fmt::format("a node is lost about every {:.0f} hours, by the cluster file's failure rate",
                              p.survival.hours_between_losses));
  return out;
}

std::string leaders(const Plan& p) {
  constexpr std::size_t shown = 5;
  std::string out;
  for (std::size_t i = 0; i < std::min(shown, p.leaders.size()); ++i)
    out += (i ? ", " : "") + p.nodes[p.leaders[i]].name;
  return out + (p.leaders.size() > shown ? fmt::format(", then {} more", p.leaders.size() - shown) : "");
}

std::string rest_of(const Plan& p) {
  std::string out = paragraph("spares gone", p.when_short);
  out += paragraph("leader", {leaders(p)});
  std::vector<std::string> environment;
  for (const auto& entry : p.environment) environment.push_back(spelled(entry));
  out += paragraph("environment", environment);
  return out + paragraph("warning", p.warnings);
}

}  // namespace

std::string to_text(const Plan& p) {
  std::string out = fmt::format(
      "{}: {} on {}, {} + {}, {}\n\n", p.job, p.program.empty() ? p.model : "a program", p.cluster,
      count_text(p.active, "active node"), count_text(p.spares, "spare"), count_text(p.world(), "rank"));
  out += node_table(p);
  if (p.hypothetical)
    out += "  (a hypothesis: SLURM picks the nodes, and the leader plans again with those)\n";
  out += device_table(p) + "\n";
  if (!p.image.empty())
    out += paragraph("image", {spelled(p.image) + ": agents and ranks run in it, the batch script does not"});
  if (!p.program.empty()) {
    out += paragraph("program", p.program);
    out += paragraph("survives", survives(p));
    out += rest_of(p);
    return out;
  }
  out += paragraph("model", {grouped_text(p.parameters) + " parameters, " + precision(p.precision)});
  out += paragraph("sharding", sharding(p));
  const std::int64_t tokens = std::int64_t{p.global_batch} * p.sequence;
  out += paragraph("step", {fmt::format("{} of {} x {} tokens in {} = {} tokens",
                                        count_text(p.micro_batches(), "micro-batch", "es"), p.micro_batch,
                                        p.sequence, count_text(p.lanes, "lane"), grouped_text(tokens))});
  out += paragraph("speed", speed(p.forecast));
  out += paragraph("run", run(p));
  out += paragraph("per rank", memory(p));
  out += paragraph("checkpoint", checkpoint(p));
  out += paragraph("node memory", host_memory_says(p.host));
  out += paragraph("survives", survives(p));
  return out + rest_of(p);
}

std::string rank_table(const Plan& p) {
  std::vector<Row> rows = {{"rank", "slot", "node", "scalable unit", "local", "GPU", "NIC", "NUMA", "rail",
                            "shard group", "replica group"}};
  for (const auto& r : p.ranks) {
    const auto& node = p.nodes[r.slot];
    const auto text = [](int v) { return std::to_string(v); };
    rows.push_back({text(r.rank), text(r.slot), node.name, node.scalable_unit, text(r.local), text(r.gpu),
                    r.nic.empty() ? "-" : r.nic, text(r.numa), text(r.rail), text(r.shard_group),
                    text(r.replica_group)});
  }
  return table(rows);
}

}  // namespace holdfast::launcher
