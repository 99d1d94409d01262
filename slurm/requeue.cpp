#include "slurm/requeue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "slurm/batch_script.hpp"
#include "slurm/commands.hpp"
#include "slurm/hostlist.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::slurm {

namespace {

constexpr std::size_t reason_limit = 120;  // of a line to paste

bool among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

OwnExclusions own_exclusions(const OwnExclusions& known, const std::vector<std::string>& excluded,
                             const std::vector<std::string>& to_exclude, double now) {
  OwnExclusions own;
  for (const auto& name : excluded)
    if (const auto before = known.find(name); before != known.end())
      own.insert(*before);
    else if (among(to_exclude, name))
      own[name] = now;
  return own;
}

std::vector<std::string> expired(const OwnExclusions& own, double now) {
  std::vector<std::string> nodes;
  for (const auto& [name, since] : own)
    if (now - since >= exclusion_s) nodes.push_back(name);
  return nodes;
}

OwnExclusions read_exclusions(const std::filesystem::path& file, JobId job) {
  if (file.empty() || !files::is_there(file)) return {};
  const auto read = json_from(files::read_text(file));
  try {
    return read.at("job_id").get<JobId>() == job ? read.at("nodes").get<OwnExclusions>() : OwnExclusions{};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

void write_exclusions(const std::filesystem::path& file, JobId job, const OwnExclusions& own) {
  files::replace_atomically(
      file, nlohmann::json{{"schema_version", 1}, {"job_id", job}, {"nodes", own}}.dump() + "\n");
}

Exclusion exclusion(const OtherNodes& around, const std::vector<std::string>& failed, int wanted,
                    const std::vector<std::string>& returning) {
  std::vector<std::string> kept = around.excluded;
  std::erase_if(kept, [&](const auto& name) { return among(returning, name) && !among(failed, name); });
  std::vector<std::string> all = kept;
  for (const auto& name : failed)
    if (!among(all, name)) all.push_back(name);
  if (all.size() == kept.size()) return {kept.size() != around.excluded.size(), kept, ""};
  std::ptrdiff_t left = 0;  // in the partition with the most
  for (const auto& nodes : around.partitions)
    left = std::max(left, std::count_if(nodes.begin(), nodes.end(), [&](const Node& node) {
                      return node.usable && !among(all, node.name);
                    }));
  if (left < wanted)
    return {kept.size() != around.excluded.size(), kept,
            fmt::format("the job needs {} nodes and only {} others of its partition are up", wanted, left)};
  return {true, all, ""};
}

void requeue_elsewhere(Cluster& cluster, JobId job, const NextNodes& next) {
  // By hand, too, the job would stay marked: SLURM would requeue it at its next end, even with exit code 0.
  if (cluster.requeues_at_its_end(job))
    return log::info("SLURM preempts job {}, and puts it back into the queue itself", job);
  std::vector<std::string> unwanted = next.failed;
  unwanted.insert(unwanted.end(), next.doubtful.begin(), next.doubtful.end());
  Exclusion change;
  try {
    // Queried before the requeue: after it SLURM ends this process, too, and there is little time.
    if (!unwanted.empty() || !next.returning.empty()) {
      const OtherNodes around = cluster.other_nodes(job);
      change = exclusion(around, unwanted, next.wanted, next.returning);
      if (!change.why_not.empty() && !next.doubtful.empty() && !next.failed.empty()) {
        log::warn("job {} may get {} again: {}", job, compress(next.doubtful), change.why_not);
        unwanted = next.failed;
        change = exclusion(around, unwanted, next.wanted, next.returning);
      }
    }
  } catch (const Error& error) {
    change.why_not = error.what();
  }
  cluster.requeue(job);
  try {
    if (change.changes) {
      cluster.exclude(job, change.nodes);
      if (change.nodes.empty())
        log::warn("job {} may run on any node again", job);
      else
        log::warn("job {} will not run on {}", job, compress(change.nodes));
    }
  } catch (const Error& error) {
    change.why_not = error.what();
  }
  if (!change.why_not.empty())
    log::warn("job {} may get {} again: {}", job, compress(unwanted), change.why_not);
}

std::string drain_line(const std::string& node, const std::string& reason) {
  std::string words = "holdfast: " + reason.substr(0, reason_limit);
  std::replace_if(
      words.begin(), words.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f || c == '\''; }, ' ');
  return shown(drain_argv(node, words));
}

}  // namespace holdfast::slurm
