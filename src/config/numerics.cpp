#include "src/config/numerics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include "src/config/choices.hpp"

namespace holdfast::config {
namespace {

constexpr const char* adapters_base = " base ";

/// Nothing without 8-bit products: runs that never had them keep their identity.
std::string products_text(const RunConfig& c) {
  if (c.precision.products != Products::fp8) return "";
  const std::string text =
      fmt::format(" products {} {}", name_of(c.precision.products), name_of(c.fp8.scaling));
  if (c.fp8.scaling == Scaling::current) return text;
  return fmt::format("{} history {} margin {}", text, c.fp8.history, c.fp8.margin);
}

/// Nothing without adapters.
std::string adapters_text(const Lora& lora) {
  if (lora.rank == 0) return "";
  return fmt::format(" adapters rank {} alpha {} dropout {} of {} on {}", lora.rank, lora.alpha, lora.dropout,
                     fmt::join(lora.targets, "+"), name_of(lora.base));
}

/// A part of an identity in the words of today: checkpoints keep those of format 1.
std::string in_todays_words(std::string part) {
  for (const auto& [old, word] :
       {std::pair{"leaf ", "micro-batch "}, std::pair{" leaves in ", " micro-batches in "}})
    if (const auto at = part.find(old); at != std::string::npos)
      part.replace(at, std::string_view(old).size(), word);
  return part.substr(std::min(part.size(), part.find_first_not_of(' ')));
}

}  // namespace

std::string arithmetic_of(const RunConfig& config) {
  const auto& t = config.train;
  const auto& p = config.precision;
  // Checkpoints hold this text: its words do not change, though leaves are called micro-batches now.
  return fmt::format("leaf {}x{}, {} leaves in {} lanes, parameters {} reduce {} buffers {} moments {}{}{}",
                     t.micro_batch, t.sequence, micro_batches(t), t.lanes, name_of(p.parameters),
                     name_of(p.reduce), name_of(p.buffers), name_of(p.moments), products_text(config),
                     adapters_text(config.lora));
}

std::string arithmetic_in(const std::string& identity) {
  constexpr int parts = 3;  // none of them has a comma
  std::size_t end = 0;
  for (int i = 0; i < parts && end != std::string::npos; ++i) end = identity.find(',', i == 0 ? 0 : end + 1);
  const std::string text = identity.substr(0, end);
  return text.substr(0, text.find(adapters_base));
}

std::string arithmetic_difference(const std::string& found, const std::string& expected) {
  std::istringstream was(found), now(expected);
  std::string out, a, b;
  for (;;) {
    const bool more_a = static_cast<bool>(std::getline(was, a, ',')),
               more_b = static_cast<bool>(std::getline(now, b, ','));
    if (!more_a && !more_b) return out;
    if (!more_a) a.clear();
    if (!more_b) b.clear();
    if (a != b)
      out += (out.empty() ? "" : "; ") +
             fmt::format("was \"{}\", now \"{}\"", in_todays_words(a), in_todays_words(b));
  }
}

Error other_arithmetic(const std::string& checkpoint, const std::string& difference) {
  return {Exit::usage,
          fmt::format("the checkpoint {} was computed with other arithmetic than this run's", checkpoint),
          difference,
          fmt::format("{}, or run.other_numerics = \"continue\" and give up bit-identical results?",
                      // Of algorithms, which nobody can set (src/train/engine/algorithms.hpp).
                      difference.find("\"choices ") == std::string::npos
                          ? "Set it back, begin another run (run.dir)"
                          : "Put the tuning.json of the run that made it into this run's directory")};
}

}  // namespace holdfast::config
