#pragma once
// Which checkpoints there have to be, as a run without agents keeps it: a file beside the folder of
// checkpoints, so that an empty mount point does not look like a run that has none. Under agents the event
// log says it.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

/// Steps that became durable and were not removed by retention, in order; empty without a file. Throws
/// Unreadable when it cannot be read, Error (no_requeue) when it is damaged.
std::vector<std::int64_t> recorded_steps(const fs::path& file);
/// The highest attempt that made one of them; nothing without a file. Throws as recorded_steps() does.
std::optional<int> recorded_attempt(const fs::path& file);
/// Attempt `attempt` has made these; those were removed. Throws Error.
void record_steps(const fs::path& file, int attempt, std::span<const std::int64_t> durable,
                  std::span<const std::int64_t> removed);

}  // namespace holdfast::checkpoint
