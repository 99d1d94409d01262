#pragma once

namespace holdfast {

/// How much of its file a writer of checkpoints reads again before it votes yes. sample: the head, the first
/// and the last block, and every 64th, others at each step.
enum class ReadBack { none, sample, full };

}  // namespace holdfast
