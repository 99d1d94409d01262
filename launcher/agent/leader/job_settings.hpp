#pragma once
// The settings with which each job of a run ran: config/NNNN.toml, by the first term of the job.
#include <optional>
#include <string>

#include "launcher/record/events.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// Those of the job that began with `job_term`. May wait long for the run directory. Throws Error where it
/// cannot be read or written.
class JobSettings {
 public:
  JobSettings(const RunDir& run, int job_term);
  /// No leader has kept them yet.
  bool are_new() const { return kept_ < job_term_; }
  /// What is not as in the job before. Nothing: there was none, or nothing is different, or this version
  /// cannot read its settings.
  std::optional<events::SettingsChanged> changed() const;
  void keep() const;

 private:
  std::filesystem::path file_of(int term) const;

  RunDir run_;
  int job_term_;
  int kept_ = 0;  ///< the newest that a job has; 0: none
};

}  // namespace holdfast::launcher
