#include "src/preflight/preflight.hpp"

#include <array>

#include "src/config/load.hpp"

namespace holdfast::preflight {
namespace {

/// Which jobs a check is for.
enum class Of {
  all,
  own_trainer,  ///< another program looks at its own files
  on_the_node   ///< what lies in an image cannot be seen here
};

struct Check {
  Of of;
  void (*look)(const Subject&, Problems&);
};

constexpr std::array checks = {
    Check{Of::on_the_node, check_program},  Check{Of::on_the_node, check_directory},
    Check{Of::own_trainer, check_tokens},   Check{Of::own_trainer, check_weights},
    Check{Of::own_trainer, check_adapters}, Check{Of::all, check_run_dir},
    Check{Of::own_trainer, check_model},    Check{Of::all, check_checkpoint},
    Check{Of::own_trainer, check_space},    Check{Of::all, check_shared},
};

bool concerns(Of of, const config::RunConfig& config) {
  switch (of) {
    case Of::all:
      return true;
    case Of::own_trainer:
      return config::own_trainer(config.rank);
    case Of::on_the_node:
      return config.container.image.empty();
  }
  return true;
}

}  // namespace

void look_at(const Subject& subject, Problems& problems) {
  for (const Check& check : checks)
    if (concerns(check.of, subject.config)) problems.look([&] { check.look(subject, problems); });
}

}  // namespace holdfast::preflight
