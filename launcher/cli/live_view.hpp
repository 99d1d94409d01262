#pragma once
// What `holdfast watch` knows of a run at this moment. The run directory, SLURM and the run's agents are
// asked by threads of their own: the view goes on whoever of them does not answer.
#include <memory>
#include <optional>

#include "launcher/cli/repeated.hpp"
#include "launcher/watch/replay.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

class LiveView {
 public:
  explicit LiveView(RunDir run);

  /// The newest of all that has come. Where storage does not answer, `gap` says for how long.
  watch::View view() const;
  /// Something was ordered: looks again at once.
  void hurry();
  /// Of a run that was looked at; nothing while storage does not answer.
  std::optional<watch::Replay> replay() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  Repeated storage_, slurm_, agents_;
};

}  // namespace holdfast::launcher
