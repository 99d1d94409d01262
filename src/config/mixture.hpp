#pragma once
// What a run trains on: one token file, or several of which each gives a share of the samples.
#include <string>
#include <vector>

#include "src/config/run_config.hpp"

namespace holdfast::config {

struct MixturePart {
  std::string path;   ///< of a token file
  double weight = 1;  ///< in proportion to the others'; above 0
  bool operator==(const MixturePart&) const = default;
};

constexpr std::size_t max_mixture_parts = 256;

/// data.tokens as the only part, or the texts "PATH WEIGHT" of data.mixture in their order; empty when
/// neither is set. Throws Error (usage): both are, a weight is not a number above 0, too many parts.
std::vector<MixturePart> mixture_of(const Data& data);
/// How metrics name the parts: by the name of the file without its ending, or by the path where two have the
/// same one.
std::vector<std::string> names_of_parts(const std::vector<MixturePart>& parts);
/// The same of the held-out files.
std::vector<std::string> names_of_files(const std::vector<std::string>& paths);
/// The text of a part.
std::string text_of(const MixturePart& part);

}  // namespace holdfast::config
