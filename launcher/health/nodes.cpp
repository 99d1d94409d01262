#include "launcher/health/nodes.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
namespace fs = std::filesystem;
constexpr int nodes_version = 1;
constexpr Millis end_limit{2000};  ///< an srun that was told to end

int rank_of(Fitness fitness) {
  static constexpr std::array order = {Fitness::critical, Fitness::warning, Fitness::unknown, Fitness::ok};
  return static_cast<int>(std::find(order.begin(), order.end(), fitness) - order.begin());
}

std::string text_of(const fs::path& file) {
  try {
    return files::read_text(file);
  } catch (const Error&) {
    return {};
  }
}

std::string last_line(std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  const auto begin = text.rfind('\n');
  return text.substr(begin == std::string::npos ? 0 : begin + 1).substr(0, 200);
}

std::string error_in(const fs::path& file) {
  const auto line = last_line(text_of(file));
  return line.empty() ? "" : " (" + line + ")";
}

}  // namespace

SharedTempFolder::SharedTempFolder(const fs::path& inside) {
  std::string name = (fs::absolute(inside) / ".holdfast-doctor-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    throw system_error("cannot make a folder in " + inside.string(), errno,
                       "Name one that every node sees with --path?");
  path_ = name;
}

SharedTempFolder::~SharedTempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Steps::Steps(const slurm::Cluster& cluster, slurm::JobId job, const std::vector<std::string>& nodes,
             const std::map<std::string, int>& gpus, const std::vector<std::string>& command,
             const fs::path& folder) {
  for (const auto& node : nodes) {
    slurm::StepRequest request;
    request.job = job;
    request.nodes = {node};
    request.command = command;
    request.output = folder / (node + ".out");
    if (const auto here = gpus.find(node); here != gpus.end()) request.gpus = here->second;
    request.name = "doctor";
    Command starter = cluster.step_command(request);
    starter.when_parent_ends = SIGKILL;
    if (starter.output.empty()) starter.output = folder / (node + ".start");  // errors of the tool itself
    running_.push_back(spawn(starter));
  }
}

void Steps::wait(Millis limit) {
  const Deadline deadline = Deadline::in(limit);
  for (;;) {
    std::erase_if(running_, [](pid_t pid) {
      const pid_t ended = ::waitpid(pid, nullptr, WNOHANG);
      return ended == pid || (ended < 0 && errno != EINTR);
    });
    if (running_.empty() || deadline.passed()) return;
    ::poll(nullptr, 0, 10);
  }
}

Steps::~Steps() {
  for (const pid_t pid : running_) ::kill(pid, SIGTERM);
  wait(end_limit);
  for (const pid_t pid : running_) ::kill(pid, SIGKILL);
  wait(end_limit);
}

NodeReport read_report(const std::string& node, const fs::path& output) {
  const auto fail = [&](const std::string& why) {
    return NodeReport{
        node, {{"doctor", Fitness::critical, why, "Does the node answer, and does it see this folder?"}}};
  };
  const std::string text = text_of(output);
  // Other programs write to a step's output, too: a site's prolog, a linker's warning.
  const auto begin = text.find('{'), end = text.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    return fail(text.empty() ? "no report in time" + error_in(fs::path(output).replace_extension(".start"))
                             : "its output is: " + last_line(text));
  const auto report = json_from(text.substr(begin, end - begin + 1));
  if (!report.is_object() || !report.contains("findings") || !report["findings"].is_array())
    return fail("its report cannot be read");
  NodeReport out{node, {}};
  for (const auto& item : report["findings"])
    if (auto finding = finding_from(item)) out.findings.push_back(std::move(*finding));
  return out;
}

std::string nodes_text(const std::vector<NodeReport>& reports) {
  std::vector<const NodeReport*> sorted;
  for (const auto& report : reports) sorted.push_back(&report);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return rank_of(worst(a->findings)) < rank_of(worst(b->findings));
  });
  std::string text;
  for (const auto* report : sorted) {
    text += fmt::format("{:<16}  {}\n", report->node, name_of(worst(report->findings)));
    for (const auto& finding : report->findings)
      if (finding.fitness == Fitness::critical || finding.fitness == Fitness::warning)
        text += fmt::format("  {:<16}  {:<8}  {}{}\n", finding.check, name_of(finding.fitness), finding.says,
                            finding.advice.empty() ? "" : " (" + finding.advice + ")");
  }
  return text;
}

std::vector<Finding> all_findings(const std::vector<NodeReport>& reports) {
  std::vector<Finding> all;
  for (const auto& report : reports)
    for (auto finding : report.findings) {
      finding.says = report.node + ": " + finding.says;
      all.push_back(std::move(finding));
    }
  return all;
}

nlohmann::json nodes_json(const std::vector<NodeReport>& reports) {
  nlohmann::json nodes = nlohmann::json::array();
  for (const auto& report : reports) {
    nlohmann::json findings = nlohmann::json::array();
    for (const auto& finding : report.findings) findings.push_back(to_json(finding));
    nodes.push_back({{"node", report.node},
                     {"fitness", name_of(worst(report.findings))},
                     {"findings", std::move(findings)}});
  }
  const auto health = health_of(all_findings(reports), "");
  return {{"schema_version", nodes_version},
          {"fitness", name_of(health.fitness)},
          {"why", health.why},
          {"nodes", std::move(nodes)}};
}

}  // namespace holdfast::launcher
