#pragma once
// What the saver needs of a writer of shards: room for an image of the state, and somebody who makes it a
// file and a vote.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/shards/shard_writer.hpp"

namespace holdfast::train {

class ImageWriter {
 public:
  virtual ~ImageWriter() = default;
  /// As those of checkpoint::ShardWriter.
  virtual std::span<const std::int64_t> places() const = 0;
  virtual std::int64_t image_bytes() const = 0;
  virtual std::string write(const checkpoint::RunPoint& point, std::span<std::byte> image) = 0;
  virtual checkpoint::WriteCost last_cost() const = 0;
};

std::unique_ptr<ImageWriter> make_image_writer(checkpoint::ShardWriter writer);

}  // namespace holdfast::train
