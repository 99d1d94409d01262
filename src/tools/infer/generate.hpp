#pragma once
// Many prompts, a few of them at a time: as soon as a text has ended, the next prompt takes its place.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/tools/infer/decoder.hpp"
#include "src/tools/infer/sampler.hpp"

namespace holdfast::infer {

struct Settings {
  Sampling sampling;
  std::int64_t max_tokens = 256;   ///< of an answer
  std::vector<std::int32_t> ends;  ///< tokens that end a text
  std::uint64_t first_number = 0;  ///< of the first prompt, see choose(): each has a number of its own
};

/// Why nothing more was written: a token that ends texts; as many as were asked for; no position is left.
enum class Stop { end, length, full, interrupted };
const char* name_of(Stop stop);

struct Answer {
  std::vector<std::int32_t> tokens;  ///< what was written; with the token that ended it
  Stop stop = Stop::length;
};

struct Listener {
  /// After each token of prompt `number` (from 0), if given.
  std::function<void(std::size_t number, std::int32_t token)> token = {};
  /// In the order in which texts end, if given.
  std::function<void(std::size_t number, const Answer& answer)> done = {};
  /// Asked before every token, if given; true: all texts end now.
  std::function<bool()> stopped = {};
};

/// Every prompt has a token, and fewer than decoder.positions(). Answers in the order of the prompts, the
/// same for every batch size of the decoder. Throws Error (runtime), see choose().
std::vector<Answer> generate(Decoder& decoder, int vocabulary,
                             std::span<const std::vector<std::int32_t>> prompts, const Settings& settings,
                             const Listener& listener = {});

}  // namespace holdfast::infer
