#pragma once
// A small run without ranks: tensors with known values, layouts, whole saves and loads in one process.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/commit.hpp"
#include "checkpoint/index/retention.hpp"
#include "checkpoint/io/direct_reader.hpp"
#include "checkpoint/shards/load.hpp"
#include "checkpoint/shards/shard_writer.hpp"

namespace holdfast::checkpoint::testing {

/// A folder that goes away with the test.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Whole tensors in memory: the value of an element follows from its tensor, index and step.
struct Whole {
  std::vector<LogicalTensor> tensors;
  std::vector<std::vector<std::byte>> values;  ///< of each tensor, in its type

  Whole(std::vector<LogicalTensor> list, std::int64_t step);
  std::vector<std::uint64_t> digests() const;
  std::vector<float> as_floats(std::size_t tensor) const;
  /// Views of `spans` in this memory.
  State view(const std::vector<PieceSpan>& spans);
};

/// Three families of each: prime-sized, one element, smaller than most worlds, none at all, a few rows. The
/// last family is bf16.
std::vector<LogicalTensor> odd_tensors();
/// `sizes[i]` elements in one row.
std::vector<LogicalTensor> vectors(const std::vector<std::int64_t>& sizes);

/// Even slices, in order.
WriterLayout even_layout(const std::vector<LogicalTensor>& tensors, int world);
/// Several tensors cut as one, at pseudo-random places; some ranks without any piece of them.
WriterLayout ragged_layout(const std::vector<LogicalTensor>& tensors, int world, std::uint64_t seed);

/// What each writer writes.
std::vector<std::vector<PieceSpan>> all_spans(const std::vector<LogicalTensor>& tensors,
                                              const WriterLayout& layout);
/// All of every tensor.
std::vector<PieceSpan> whole_spans(const std::vector<LogicalTensor>& tensors);

Facts some_facts(int world);

/// Writes the part of `whole` that is the writer's; returns its vote.
std::string write_shard(ShardWriter& writer, Whole whole, const RunPoint& point);

/// The votes of all writers, without the commit.
Commit write_all_shards(const fs::path& checkpoints, Whole& whole, std::int64_t step, Generation generation,
                        const WriterLayout& layout, WriteOptions options = {});
/// A whole save: committed, and tidied up after.
Committed save(const fs::path& checkpoints, Whole& whole, std::int64_t step, Generation generation,
               const WriterLayout& layout, int keep = 3);

/// Loads with every rank of `layout` and puts the pieces together; NaN where nothing was loaded.
std::vector<std::vector<std::byte>> load_all(const fs::path& step_dir,
                                             const std::vector<LogicalTensor>& tensors,
                                             const WriterLayout& layout);
/// True when the checkpoint holds exactly the values of `step`.
bool holds(const fs::path& step_dir, const std::vector<LogicalTensor>& tensors, std::int64_t step);

/// The text of a manifest as a later version might have written it, under a digest that matches.
std::string with_schema_version(const std::string& manifest, int version);

std::string read_file(const fs::path& path);
void write_file(const fs::path& path, const std::string& bytes);
void flip_bit(const fs::path& path, std::uint64_t bit);

/// A folder of small checkpoints of one writer.
struct Saved : ::testing::Test {
  const Folder folder;
  const fs::path& path = folder.path();

  void save_steps(std::initializer_list<std::int64_t> steps);
  void damage(std::int64_t step);
};

}  // namespace holdfast::checkpoint::testing
