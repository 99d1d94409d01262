#include "src/train/identity.hpp"

#include <fmt/format.h>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/config/choices.hpp"

namespace holdfast::train {

namespace {

/// Nothing without 8-bit products: runs that never had them keep their identity.
std::string products_text(const config::RunConfig& c) {
  using config::name_of;
  if (c.precision.products != config::Products::fp8) return "";
  const std::string text =
      fmt::format(" products {} {}", name_of(c.precision.products), name_of(c.fp8.scaling));
  if (c.fp8.scaling == config::Scaling::current) return text;
  return fmt::format("{} history {} margin {}", text, c.fp8.history, c.fp8.margin);
}

/// Nothing without adapters.
std::string adapters_text(const config::Lora& lora, const std::string& base) {
  if (lora.rank == 0) return "";
  return fmt::format(" adapters rank {} alpha {} dropout {} of {} on {} base {}", lora.rank, lora.alpha,
                     lora.dropout, fmt::join(lora.targets, "+"), config::name_of(lora.base), base);
}

}  // namespace

std::string numerics_identity(const config::RunConfig& config, int lanes, const std::string& base,
                              const std::string& kernels) {
  const auto& t = config.train;
  const auto& p = config.precision;
  using config::name_of;
  return fmt::format(
      "leaf {}x{}, {} leaves in {} lanes, parameters {} reduce {} buffers {} moments {}{}{}, {}",
      t.micro_batch, t.sequence, t.leaves, lanes, name_of(p.parameters), name_of(p.reduce),
      name_of(p.buffers), name_of(p.moments), products_text(config), adapters_text(config.lora, base),
      kernels);
}

void require_one_identity(comm::Communicator& world, const std::string& identity) {
  const std::uint64_t mine = hash_name(identity.data(), identity.size());
  std::uint64_t largest[] = {mine, ~mine};  // the complement's maximum is the minimum
  world.all_reduce(largest, comm::Scalar::max);
  if (largest[0] == ~largest[1]) return;
  throw Error(Exit::unhealthy,
              "the ranks of this run compute differently, so it could not be repeated bit for bit",
              fmt::format("rank {} has: {}", world.rank(), identity), "Run on nodes with equal processors?");
}

}  // namespace holdfast::train
