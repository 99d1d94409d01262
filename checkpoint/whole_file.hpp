#pragma once
// Copying whole tensors of a checkpoint into one file of another format: what goes where is a plan, and the
// copy streams at the speed of the disk. Every block read is checked, and every tensor's digest too.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace holdfast::checkpoint {

/// Called now and then with bytes done and in total, on the calling thread. May throw, to stop.
using CopyProgress = std::function<void(std::int64_t done, std::int64_t total)>;

struct PlacedTensor {
  int tensor = 0;            ///< in Manifest::tensors
  DType type = DType::fp32;  ///< in the new file: as it is stored, or bf16 of fp32 (rounded to even)
  std::int64_t offset = 0;   ///< in the new file, a multiple of the element size
};

/// A file to be: `head` at its front, the tensors behind it (ascending, apart), zeros between.
struct WholeFile {
  std::string head;
  std::vector<PlacedTensor> tensors;
  std::int64_t bytes = 0;
};

struct WholeFileOptions {
  std::int64_t window_bytes = 64 << 20;  ///< held in memory twice; a multiple of 4096
};

/// Writes `file` under the name `target` once it is whole and durable. Throws Damaged (the checkpoint), Error
/// (usage: `target` exists or has no folder; runtime: no room, no permission); nothing is left behind then.
void write_whole_file(const fs::path& step_dir, Manifest manifest, const WholeFile& file,
                      const fs::path& target, const CopyProgress& progress = {},
                      const WholeFileOptions& options = {});

}  // namespace holdfast::checkpoint
