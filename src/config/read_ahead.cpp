#include "src/config/read_ahead.hpp"

#include <algorithm>

namespace holdfast::config {
namespace {

std::int64_t bytes_of_micro_batch(const Train& train) {
  constexpr std::int64_t arrays = 3;  // inputs, labels, begins of documents
  return arrays * static_cast<std::int64_t>(sizeof(std::int32_t)) * train.micro_batch * train.sequence;
}

}  // namespace

int micro_batches_ahead(const RunConfig& config) {
  constexpr std::int64_t max_ahead = 16384;
  const std::int64_t bytes = static_cast<std::int64_t>(config.data.read_ahead_mb) << 20;
  return static_cast<int>(std::clamp<std::int64_t>(bytes / bytes_of_micro_batch(config.train), 2, max_ahead));
}

std::int64_t read_ahead_bytes(const RunConfig& config) {
  return micro_batches_ahead(config) * bytes_of_micro_batch(config.train);
}

}  // namespace holdfast::config
