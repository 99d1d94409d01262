#include "src/train/engine/batch_reader.hpp"

#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::train {

checkpoint::Patience patience_with_tokens(const config::RunConfig& config) {
  const int limit_s = config.checkpoint.read_patience_s;
  return {std::chrono::seconds(limit_s), [limit_s](const Error& why, bool first) {
            if (first) log::warn("{}: trying again for up to {} s", why.what(), limit_s);
          }};
}

BatchReader::BatchReader(const data::Samples& samples, int micro_batch, int sequence, bool boundaries,
                         BatchOrder order, int ahead, checkpoint::Patience patience)
    : samples_(samples), order_(std::move(order)), patience_(std::move(patience)) {
  expects(ahead >= 2 && !order_.of_micro_step.empty(), "room to read ahead, and something to read");
  slots_.reserve(as_size(ahead));
  for (int i = 0; i < ahead; ++i) slots_.push_back({MicroBatch(micro_batch, sequence, boundaries), {}, {}});
  thread_ = std::thread([this] { serve(); });
}

BatchReader::~BatchReader() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

model::Batch BatchReader::read(std::int64_t first_sample, int micro_step) {
  const Place place{first_sample, micro_step};
  std::unique_lock lock(mutex_);
  if (std::exchange(in_use_, false)) {
    first_ = (first_ + 1) % slots_.size();
    --filled_;
  }
  if (!std::exchange(started_, true) || wanted_ != place) {
    ++jumps_;
    filled_ = 0;
    wanted_ = next_ = place;
  }
  changed_.notify_all();
  changed_.wait(lock, [this] { return filled_ > 0; });
  wanted_ = after(place);
  in_use_ = true;
  const Slot& slot = slots_[first_];
  if (slot.failed) std::rethrow_exception(slot.failed);
  return slot.batch;
}

BatchReader::Place BatchReader::after(Place place) const {
  if (++place.micro_step == static_cast<int>(order_.of_micro_step.size()))
    place = {place.first_sample + order_.global_batch, 0};
  return place;
}

void BatchReader::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return over_ || (started_ && filled_ < slots_.size()); });
    if (over_) return;
    // While this thread reads, nobody looks at the slot: it is none of the filled ones, nor is it after a
    // jump.
    Slot& slot = slots_[(first_ + filled_) % slots_.size()];
    const Place place = next_;
    const std::uint64_t jumps = jumps_;
    lock.unlock();
    slot.failed = nullptr;
    try {
      slot.batch = checkpoint::patiently(patience_, [&] {
        expects(!over_, "somebody wants the micro-batch");
        return slot.memory.read(samples_, place.first_sample + order_.of_micro_step[place.micro_step]);
      });
    } catch (...) {
      slot.failed = std::current_exception();
    }
    lock.lock();
    if (jumps != jumps_) continue;
    ++filled_;
    next_ = after(place);
    changed_.notify_all();
  }
}

}  // namespace holdfast::train
