#include "launcher/agent/leader/old_logs.hpp"

#include "launcher/agent/ranks/rank_start.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

void remove_old_logs(const RunDir& run, int attempt, int kept) {
  if (kept <= 0) return;
  for (const auto& name : files::list(run.logs())) {
    const int of = attempt_of_logs(name);
    if (of <= 1 || of > attempt - kept) continue;
    std::error_code error;
    files::fs::remove_all(run.logs() / name, error);
    if (error) log::warn("the logs of attempt {} cannot be removed: {}", of, error.message());
  }
}

}  // namespace holdfast::launcher
