#include "src/preflight/preflight.hpp"

#include <array>

#include "src/config/rank_promises.hpp"

namespace holdfast::preflight {
namespace {

/// Which jobs a check is for.
enum class Of {
  all,
  trained_as_set,  ///< another program looks at its own files
  on_the_node      ///< what lies in an image cannot be seen here
};

struct Check {
  Of of;
  void (*look)(const Subject&, Problems&);
};

constexpr std::array checks = {
    Check{Of::on_the_node, check_program},     Check{Of::on_the_node, check_directory},
    Check{Of::trained_as_set, check_tokens},   Check{Of::trained_as_set, check_weights},
    Check{Of::trained_as_set, check_adapters}, Check{Of::all, check_run_dir},
    Check{Of::trained_as_set, check_model},    Check{Of::all, check_checkpoint},
    Check{Of::trained_as_set, check_space},    Check{Of::all, check_shared},
};

bool concerns(Of of, const config::RunConfig& config) {
  switch (of) {
    case Of::all:
      return true;
    case Of::trained_as_set:
      return config::promises_of(config.rank).trains_as_set;
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
