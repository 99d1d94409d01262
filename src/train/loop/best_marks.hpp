#pragma once
// Which checkpoint is marked as the best one, on logical rank 0. All is done on the saver's thread, in the
// order of the saves, so that a mark is there before its checkpoint, and the one before it until then.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "src/train/save/saver.hpp"

namespace holdfast::train {

class BestMarks {
 public:
  explicit BestMarks(std::filesystem::path checkpoints);

  /// The run goes on from `step`: what is marked beyond it is to be done again. While nothing is saved.
  void begin_at(std::int64_t step) { from_->store(step); }
  /// The same write, of which the best states are marked.
  WriteShard wrap(WriteShard write) const;
  /// What was begun is durable, and no other save will follow. Warns where storage does not answer.
  void finish() const;

 private:
  std::filesystem::path checkpoints_;
  std::shared_ptr<std::atomic<std::int64_t>> from_;  ///< begun at, and not looked at; -1: looked at
};

}  // namespace holdfast::train
