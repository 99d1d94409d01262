// Cluster files and job files. A run directory has both, and may come from anybody.
#include "src/base/error.hpp"
#include "src/config/load.hpp"
#include "tests/fuzz/scratch.hpp"
#include "tests/fuzz/targets.hpp"

namespace holdfast::fuzz {

void try_cluster(std::string_view bytes) {
  static const Scratch scratch;
  try {
    const config::ClusterFacts read = config::load_cluster(scratch.write("cluster.toml", bytes));
    const auto again = config::load_cluster(scratch.write("cluster.toml", config::to_toml(read)));
    expects(again == read, "what is accepted is written and accepted again");
  } catch (const Error&) {
  }
}

void try_job(std::string_view bytes) {
  static const Scratch scratch;
  try {
    const config::RunConfig read = config::load(scratch.write("job.toml", bytes)).config;
    const auto again = config::load(scratch.write("job.toml", config::to_toml(read))).config;
    expects(config::changed_settings(read, again).empty(), "what is accepted is written and accepted again");
  } catch (const Error&) {
  }
}

}  // namespace holdfast::fuzz
