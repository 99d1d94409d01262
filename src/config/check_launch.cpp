// Rules about who runs and who watches.
#include <fmt/format.h>

#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>

#include "src/config/check_parts.hpp"
#include "src/config/python_command.hpp"
#include "src/config/rank_promises.hpp"
#include "src/config/refuse.hpp"

namespace holdfast::config {
namespace {

void check_cluster(const Cluster& c) {
  if (c.nodes < 1) refuse("cluster.nodes must be at least 1", fmt::format("it is {}", c.nodes), "Use 1?");
  if (c.spares < 0)
    refuse("cluster.spares must not be negative", fmt::format("it is {}", c.spares), "Use 0 for no spares?");
  if (c.ranks_per_node < 0)
    refuse("cluster.ranks_per_node must not be negative", fmt::format("it is {}", c.ranks_per_node),
           "Use 0 for one per GPU?");
}

void check_supervise(const Supervise& s) {
  const auto three_beats = [&](const char* name, int silence) {
    if (silence < 3 * s.heartbeat_ms)
      refuse(fmt::format("supervise.{} is too short", name),
             fmt::format("{} ms of silence is less than three heartbeats of {} ms, so one late packet would "
                         "look like a death",
                         silence, s.heartbeat_ms),
             fmt::format("Use at least {}, or a shorter heartbeat_ms?", 3 * s.heartbeat_ms));
  };
  if (s.heartbeat_ms < 1)
    refuse("supervise.heartbeat_ms must be positive", fmt::format("it is {}", s.heartbeat_ms), "Use 200?");
  three_beats("node_silence_ms", s.node_silence_ms);
  three_beats("leader_silence_ms", s.leader_silence_ms);
}

void check_shrinking(const RunConfig& c) {
  if (c.supervise.min_nodes > c.cluster.nodes)
    refuse("supervise.min_nodes is larger than cluster.nodes",
           fmt::format("{} and {}", c.supervise.min_nodes, c.cluster.nodes),
           "Use 0 for a run that never shrinks?");
  if (c.supervise.when_short == WhenShort::shrink && c.supervise.min_nodes == 0)
    refuse("supervise.when_short = \"shrink\" needs supervise.min_nodes",
           "0 means that the run never shrinks", "How many active nodes are the fewest that make sense?");
}

void check_mount(const std::string& mount) {
  const auto bad = [&](const char* why) {
    refuse("container.mounts holds '" + mount + "', which cannot be mounted", why,
           "Write \"/source\", \"/source:/target\" or \"/source:/target:ro\"?");
  };
  if (mount.find(',') != std::string::npos) bad("a comma begins the next mount");
  const auto colon = mount.find(':');
  if (!mount.starts_with('/') || (colon != std::string::npos && mount[colon + 1] != '/'))
    bad("source and target are absolute paths");
}

/// Options of pyxis that a setting stands for.
void check_pyxis_option(const std::string& option) {
  constexpr std::array<std::array<std::string_view, 2>, 5> settings = {{{"--container-image", "image"},
                                                                        {"--container-mounts", "mounts"},
                                                                        {"--container-writable", "writable"},
                                                                        {"--container-readonly", "writable"},
                                                                        {"--container-workdir", "workdir"}}};
  for (const auto& [name, setting] : settings)
    if (option.substr(0, option.find('=')) == name)
      refuse("container.extra holds " + std::string(name), "there is a setting for it",
             fmt::format("Set container.{}?", setting));
  if (!option.starts_with("--"))
    refuse("container.extra holds '" + option + "', which is no option of srun", "it does not begin with --",
           "Write \"--option=value\"?");
}

void check_container(const Container& c) {
  if (c.image.empty() && c != Container())
    refuse("[container] says how an image is used, and names none",
           c.mounts.empty() ? "container.image is empty"
                            : "container.image is empty, and " + c.mounts.front() + " is to be mounted",
           "Set container.image?");
  for (const auto& mount : c.mounts) check_mount(mount);
  if (!c.workdir.empty() && !c.workdir.starts_with('/'))
    refuse("container.workdir is not an absolute path", "'" + c.workdir + "'", "Begin it with /?");
  if (c.runtime == ContainerRuntime::pyxis)
    for (const auto& option : c.extra) check_pyxis_option(option);
}

/// "torch", "a.b_2": what Python's import statement takes.
bool is_module(const std::string& name) {
  bool begins = true;
  for (const char c : name) {
    const bool letter = std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
    if (!letter && (begins || (c != '.' && std::isdigit(static_cast<unsigned char>(c)) == 0))) return false;
    begins = c == '.';
  }
  return !begins;
}

void check_slurm(const Slurm& s) {
  constexpr int least_s = 60;
  if (s.comment_s > 0 && s.comment_s < least_s)
    refuse(fmt::format("slurm.comment_s = {} is too short", s.comment_s),
           "each update is a request to slurmctld", fmt::format("Use {} or more, or 0 for none?", least_s));
}

void check_rank(const Rank& r) {
  if (r.command.empty() || r.command.front().empty())
    refuse("rank.command is empty", "a rank needs a program", "Leave it out for holdfast-train?");
  const RankPromises promises = promises_of(r);
  if (promises.always_reports() && r.kind != RankKind::automatic)
    refuse("rank.kind is for other programs", "holdfast-train always speaks to its agent", "Leave it out?");
  if (!promises.client_buffers && r.buffers_gib > 0)
    refuse("rank.buffers_gib is for other programs", "the buffers of holdfast-train are planned",
           "Leave it out?");
  if (!r.warm.empty() && !python_command(r.command))
    refuse("rank.warm is for a Python program",
           "rank.command is not a Python interpreter with a script or with -m and a module", "Leave it out?");
  for (const auto& module : r.warm)
    if (!is_module(module)) refuse("rank.warm holds what is no module", "'" + module + "'", "");
  for (const auto& entry : r.environment) {
    const auto equals = entry.find('=');
    if (equals == std::string::npos || equals == 0)
      refuse("rank.environment holds an entry without a name", "'" + entry + "'", "Write \"NAME=value\"?");
  }
}

}  // namespace

void check_launch(const RunConfig& config, ErrorList& refused) {
  refused.of([&] { check_cluster(config.cluster); });
  refused.of([&] { check_supervise(config.supervise); });
  refused.of([&] { check_shrinking(config); });
  refused.of([&] { check_container(config.container); });
  refused.of([&] { check_rank(config.rank); });
  refused.of([&] { check_slurm(config.slurm); });
}

}  // namespace holdfast::config
