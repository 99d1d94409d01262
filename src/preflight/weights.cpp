// Weights and adapters that a run without a checkpoint begins with.
#include "src/preflight/checks.hpp"
#include "src/preflight/paths.hpp"
#include "src/weights/contents.hpp"

namespace holdfast::preflight {
namespace {

/// What is not here may be on another machine.
template <class Look>
void look_at_path(const std::string& path, Problems& problems, Look look) {
  if (path.empty()) return;
  try {
    look();
  } catch (const Error& error) {
    why_absent(path).empty() ? problems.add(error) : problems.add_of_this_machine(error);
  }
}

}  // namespace

void check_weights(const Subject& subject, Problems& problems) {
  const std::string& path = subject.config.model.weights;
  look_at_path(path, problems,
               [&] { weights::look_at_weights(path, "model.weights names it", subject.model); });
}

void check_adapters(const Subject& subject, Problems& problems) {
  const std::string& path = subject.config.lora.weights;
  look_at_path(path, problems, [&] {
    weights::look_at_adapters(path, "lora.weights names it", subject.model, subject.config.lora);
  });
}

}  // namespace holdfast::preflight
