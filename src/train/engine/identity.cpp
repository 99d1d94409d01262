#include "src/train/engine/identity.hpp"

#include <fmt/format.h>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/config/numerics.hpp"

namespace holdfast::train {

std::string numerics_identity(const config::RunConfig& config, const std::string& base,
                              const std::string& kernels) {
  return fmt::format("{}{}, {}", config::arithmetic_of(config), config.lora.rank > 0 ? " base " + base : "",
                     kernels);
}

void require_one_identity(comm::Communicator& world, const std::string& identity) {
  const std::uint64_t mine = hash_name(identity.data(), identity.size());
  std::uint64_t largest[] = {mine, ~mine};  // the complement's maximum is the minimum
  world.all_reduce(largest, comm::Scalar::max);
  if (largest[0] == ~largest[1]) return;
  throw Error(Exit::unhealthy,
              "the ranks of this run compute differently, so it could not be repeated bit for bit",
              fmt::format("rank {} has: {}", world.rank(), identity),
              "Run on nodes with equal processors, GPUs and drivers?");
}

}  // namespace holdfast::train
