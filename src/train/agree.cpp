#include "src/train/agree.hpp"

#include <exception>

#include "src/base/error.hpp"

namespace holdfast::train {

std::optional<Failure> worst_failure(comm::Communicator& world, const std::optional<Failure>& mine) {
  // Severity above, then the lowest rank: one maximum finds both.
  const auto size = static_cast<std::uint64_t>(world.size()), rank = static_cast<std::uint64_t>(world.rank());
  std::uint64_t word[] = {mine ? (mine->severity << 32 | (size - rank)) : 0};
  world.all_reduce(word, comm::Scalar::max);
  if (word[0] == 0) return std::nullopt;
  Failure worst;
  worst.severity = word[0] >> 32;
  worst.rank = static_cast<int>(size - (word[0] & 0xffffffff));
  worst.text = comm::broadcast_text(world, mine && worst.rank == world.rank() ? mine->text : "", worst.rank);
  return worst;
}

void together(comm::Communicator& world, bool mine, const std::function<void()>& work) {
  std::exception_ptr own;
  std::optional<Failure> failure;
  auto caught = [&](Exit exit, const char* what) {
    own = std::current_exception();
    failure = Failure{static_cast<std::uint64_t>(exit) + 1, world.rank(), what};
  };
  try {
    if (mine) work();
  } catch (const Error& error) {
    caught(error.exit(), error.what());
  } catch (const std::exception& error) {
    caught(Exit::runtime, error.what());
  }
  const auto worst = worst_failure(world, failure);
  if (own) std::rethrow_exception(own);
  if (worst)
    throw Error(static_cast<Exit>(worst->severity - 1), worst->text,
                "on rank " + std::to_string(worst->rank));
}

}  // namespace holdfast::train
