#pragma once
// Which job has which GPU of a node, for `dcgm-exporter --hpc-job-mapping-dir`: a file for each GPU, named by
// its number, with the ids of jobs, one a line.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::launcher {

/// The text of such a file with this job, and without it. Lines of others stay, empty ones do not: the
/// exporter takes each for a job. Pure.
std::string with_job(std::string_view text, std::string_view job);
std::string without_job(std::string_view text, std::string_view job);

/// This job's lines, for as long as this lives. Nothing is thrown, and no lock is awaited for long: the first
/// thing that goes wrong is logged, and the rest is left out.
class GpuJobMapping {
 public:
  /// `folder`: on this node; empty: nothing is written. `gpus`: numbers that are unique on the node; none:
  /// they are not known.
  GpuJobMapping(std::filesystem::path folder, std::string job, std::vector<std::string> gpus);
  ~GpuJobMapping();
  GpuJobMapping(const GpuJobMapping&) = delete;

  const std::string& trouble() const { return trouble_; }  ///< what went wrong first; "": nothing

 private:
  void change(std::string (*changed)(std::string_view text, std::string_view job));
  std::filesystem::path folder_;
  std::string job_;
  std::vector<std::string> gpus_;
  std::string trouble_;
};

}  // namespace holdfast::launcher
