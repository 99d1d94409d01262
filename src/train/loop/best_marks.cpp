#include "src/train/loop/best_marks.hpp"

#include <utility>

#include "checkpoint/index/best.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/train/loop/loss_memory.hpp"

namespace holdfast::train {

BestMarks::BestMarks(std::filesystem::path checkpoints)
    : checkpoints_(std::move(checkpoints)), from_(std::make_shared<std::atomic<std::int64_t>>(-1)) {}

WriteShard BestMarks::wrap(WriteShard write) const {
  return
      [write = std::move(write), checkpoints = checkpoints_, from = from_](const auto& point, auto pieces) {
        if (const std::int64_t begun = from->exchange(-1); begun >= 0)
          checkpoint::unmark_later(checkpoints, begun);
        checkpoint::unmark_older(checkpoints);
        const optim::BestLoss best = loss_memory_from_text(point.detector).best;
        if (best.step == point.step) checkpoint::mark_best(checkpoints, best.step, best.loss);
        return write(point, pieces);
      };
}

void BestMarks::finish() const {
  try {
    checkpoint::unmark_older(checkpoints_);
  } catch (const Error& error) {
    log::warn("a checkpoint that is not the best any more stays marked: {}", error.what());
  }
}

}  // namespace holdfast::train
