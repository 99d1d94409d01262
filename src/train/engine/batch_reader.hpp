#pragma once
// The micro-batches of a rank, read ahead by a thread of its own: storage that hangs, or is slow, stops
// training only when all that was read ahead is used up.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/index/patience.hpp"
#include "src/config/run_config.hpp"
#include "src/train/engine/micro_batch.hpp"

namespace holdfast::train {

/// With token files that cannot be read now: checkpoint.read_patience_s, and a line in the log.
checkpoint::Patience patience_with_tokens(const config::RunConfig& config);

/// Which samples a rank computes, step by step.
struct BatchOrder {
  std::int64_t global_batch = 0;  ///< samples of a step
  std::vector<std::int64_t>
      of_micro_step;  ///< first sample of its micro-batch, counted from the step's first
};

class BatchReader {
 public:
  /// `ahead`: micro-batches that are kept, the one in use included; at least 2. `patience`: with storage that
  /// fails. References outlive the reader.
  BatchReader(const data::Samples& samples, int micro_batch, int sequence, bool boundaries, BatchOrder order,
              int ahead, checkpoint::Patience patience);
  /// Waits for the read, or the pause between two, that is going on.
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  /// The micro-batch of `micro_step` in the step that begins with sample `first_sample`; valid until the next
  /// call. Whoever asks in the order of the run finds it read, as long as the storage keeps up; after a jump
  /// (a start, a rollback) reading begins there anew. Throws what reading it has thrown.
  model::Batch read(std::int64_t first_sample, int micro_step);

 private:
  struct Place {
    std::int64_t first_sample = 0;
    int micro_step = 0;
    bool operator==(const Place&) const = default;
  };
  struct Slot {
    MicroBatch memory;
    model::Batch batch;
    std::exception_ptr failed;
  };
  Place after(Place place) const;
  void serve();

  const data::Samples& samples_;
  const BatchOrder order_;
  const checkpoint::Patience patience_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;  ///< a ring: [first_, first_ + filled_) are read
  std::size_t first_ = 0, filled_ = 0;
  bool in_use_ = false;  ///< the first one, by the caller of read()
  Place wanted_, next_;  ///< of slot first_, when nobody jumps; of the one that is read next
  std::uint64_t jumps_ = 0;
  bool started_ = false;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

}  // namespace holdfast::train
