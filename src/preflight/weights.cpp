// Weights and adapters that a run without a checkpoint begins with.
#include "checkpoint/index/catalog.hpp"
#include "src/preflight/checks.hpp"
#include "src/preflight/paths.hpp"
#include "src/weights/contents.hpp"

namespace holdfast::preflight {
namespace {

/// What is not here may be on another machine.
template <class Look>
void look_at_path(const std::string& path, Problems& problems, Look look) {
  try {
    look();
  } catch (const Error& error) {
    why_absent(path).empty() ? problems.add(error) : problems.add_of_this_machine(error);
  }
}

/// From a checkpoint: then nobody asks with what the run once began.
bool goes_on(const Subject& subject) {
  const std::string& resume = subject.config.run.resume;
  if (resume == "none" && !subject.requeued) return false;
  if (resume != "none" && resume != "auto") return true;
  return !subject.run.path.empty() && !checkpoint::committed_steps(subject.run.checkpoints()).empty();
}

}  // namespace

/// Beside adapters the weights are there for as long as the run is.
void check_weights(const Subject& subject, Problems& problems) {
  const std::string& path = subject.config.model.weights;
  if (path.empty() || (!subject.model.adapters.any() && goes_on(subject))) return;
  look_at_path(path, problems,
               [&] { weights::look_at_weights(path, "model.weights names it", subject.model); });
}

void check_adapters(const Subject& subject, Problems& problems) {
  const std::string& path = subject.config.lora.weights;
  if (path.empty() || goes_on(subject)) return;
  look_at_path(path, problems, [&] {
    weights::look_at_adapters(path, "lora.weights names it", subject.model, subject.config.lora);
  });
}

}  // namespace holdfast::preflight
