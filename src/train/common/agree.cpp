#include "src/train/common/agree.hpp"

#include <cstring>
#include <exception>

#include "src/base/as_size.hpp"
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

std::vector<std::string> texts_of_all(comm::Communicator& world, const std::string& mine) {
  // Everybody fills in its own part of zeros, so the sums are the texts.
  const auto ranks = as_size(world.size()), rank = as_size(world.rank());
  std::vector<std::uint64_t> bytes(ranks);
  bytes[rank] = mine.size();
  world.all_reduce(bytes, comm::Scalar::sum);
  const auto words_of = [&](std::size_t r) { return (bytes[r] + 7) / 8; };
  std::size_t words = 0, before = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (r < rank) before += words_of(r);
    words += words_of(r);
  }
  std::vector<std::uint64_t> all(words);
  if (!mine.empty()) std::memcpy(all.data() + before, mine.data(), mine.size());
  if (words > 0) world.all_reduce(all, comm::Scalar::sum);
  std::vector<std::string> out;
  std::size_t at = 0;
  for (std::size_t r = 0; r < ranks; at += words_of(r++))
    out.emplace_back(reinterpret_cast<const char*>(all.data() + at), bytes[r]);
  return out;
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
    throw OnAnotherRank(static_cast<Exit>(worst->severity - 1), worst->text,
                        "on rank " + std::to_string(worst->rank));
}

}  // namespace holdfast::train
