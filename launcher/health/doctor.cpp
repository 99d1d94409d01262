#include "launcher/health/doctor.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launcher/health/check_gpu.hpp"
#include "launcher/health/check_host.hpp"
#include "launcher/health/check_network.hpp"
#include "launcher/health/check_software.hpp"
#include "launcher/health/check_storage.hpp"
#include "launcher/health/guarded.hpp"
#include "src/base/files.hpp"

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
constexpr int doctor_version = 1;

std::vector<Finding> check_limits(const Roots& roots, const Expected& expected) {
  return limit_findings(read_limits(), expected,
                        expected.nics() || !files::list(roots.sys / "class/infiniband").empty());
}

}  // namespace

std::vector<Check> checks_of(const Roots& roots, const Expected& expected) {
  std::vector<Check> checks = {
      {"gpu", [=] { return check_gpus(roots, expected); }},
      {"nic", [=] { return check_rdma(roots, expected); }},
      {"net.control", [=] { return check_interface(roots, expected); }},
      {"pcie.width", [=] { return check_pcie(roots, expected); }},
      {"cpu.count", [=] { return cpu_findings(read_cpus(roots), expected); }},
      {"memory", [=] { return check_memory(roots, expected); }},
      {"memory.shm", [=] { return check_shm(roots, expected); }},
      {"limits", [=] { return check_limits(roots, expected); }},
      {"time.sync", [] { return clock_findings(read_clock()); }},
      {"kernel", [=] { return check_kernel(roots); }},
  };
  for (const auto& mount : network_mounts(roots))
    checks.push_back({"mount " + mount.string(), [=] { return std::vector{ask_mount(mount)}; }});
  for (const auto& folder : expected.paths)
    checks.push_back({"disk " + folder.string(), [=] { return check_folder(folder, expected.depth, true); }});
  if (expected.paths.empty())
    checks.push_back({"disk /tmp", [=] { return check_folder("/tmp", expected.depth, false); }});
  for (const auto& file : expected.shared_files)
    checks.push_back({"disk.seen", [=] { return std::vector{check_shared_file(file)}; }});
  if (expected.depth == Depth::fast) return checks;
  checks.push_back({"slurm.version", [] { return check_slurm(); }});
  checks.push_back({"mpi.version", [] { return check_mpi(); }});
  checks.push_back({"libraries", [=] { return check_libraries(expected); }});
  return checks;
}

std::vector<Finding> examine(const Roots& roots, const Expected& expected, Millis limit) {
  return run_guarded(checks_of(roots, expected), limit);
}

std::string report_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const auto& finding : findings) {
    text += fmt::format("{:<16}  {:<8}  {}", finding.check, name_of(finding.fitness), finding.says);
    text += finding.advice.empty() ? "\n" : " (" + finding.advice + ")\n";
  }
  const auto health = health_of(findings, "");
  text += std::string("node: ") + name_of(health.fitness) + "\n";
  return text;
}

nlohmann::json report_json(const std::string& node, const std::vector<Finding>& findings) {
  const auto health = health_of(findings, "");
  nlohmann::json list = nlohmann::json::array();
  for (const auto& finding : findings) list.push_back(to_json(finding));
  return {{"schema_version", doctor_version},
          {"node", node},
          {"fitness", name_of(health.fitness)},
          {"why", health.why},
          {"findings", std::move(list)}};
}

}  // namespace holdfast::launcher
