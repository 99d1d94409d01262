#pragma once
// Copying whole tensors, of a checkpoint or computed, into files of another format: what goes where is a
// plan, and the copy streams at the speed of the disk.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/io/elements.hpp"
#include "checkpoint/io/tensor_source.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

/// Called now and then with bytes done and in total, on the calling thread. May throw, to stop.
using CopyProgress = std::function<void(std::int64_t done, std::int64_t total)>;

struct PlacedTensor {
  int tensor = 0;               ///< in TensorSource::tensors()
  Element type = Element::f32;  ///< in the new file: as it is read, or what fp32 is rounded to
  std::int64_t offset = 0;      ///< in the new file, a multiple of the element size
};

/// A file to be: `head` at its front, the tensors behind it (ascending, apart), zeros between.
struct WholeFile {
  std::string head;
  std::vector<PlacedTensor> tensors;
  std::int64_t bytes = 0;
};

struct WholeFileOptions {
  /// Of the new file, made at a time by each worker; a multiple of 4096. A worker takes some four times as
  /// much memory.
  std::int64_t window_bytes = 8 << 20;
  int workers = 4;
};

/// A file and the name that it gets once it is whole and durable.
struct NamedFile {
  WholeFile file;
  fs::path target;
};

/// Writes all of `files`, which together have no tensor twice, and has their tensors checked. Throws what
/// `source` throws, Error (usage: a target exists or has no folder; runtime: no room, no permission). No file
/// gets its name before all of them are whole, and nothing is left behind after a failure up to there.
void write_whole_files(TensorSource& source, std::span<const NamedFile> files,
                       const CopyProgress& progress = {}, const WholeFileOptions& options = {});

/// The type as which a tensor is read.
Element element_of(const LogicalTensor& tensor);

}  // namespace holdfast::checkpoint
