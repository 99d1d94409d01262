#include "src/train/save/image_writer.hpp"

#include <utility>

namespace holdfast::train {
namespace {

class ShardImageWriter final : public ImageWriter {
 public:
  explicit ShardImageWriter(checkpoint::ShardWriter writer) : writer_(std::move(writer)) {}
  std::span<const std::int64_t> places() const override { return writer_.places(); }
  std::int64_t image_bytes() const override { return writer_.image_bytes(); }
  std::string write(const checkpoint::RunPoint& point, std::span<std::byte> image) override {
    return writer_.write(point, image);
  }
  checkpoint::WriteCost last_cost() const override { return writer_.last_cost(); }

 private:
  checkpoint::ShardWriter writer_;
};

}  // namespace

std::unique_ptr<ImageWriter> make_image_writer(checkpoint::ShardWriter writer) {
  return std::make_unique<ShardImageWriter>(std::move(writer));
}

}  // namespace holdfast::train
