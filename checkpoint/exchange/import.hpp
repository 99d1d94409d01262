#pragma once
// From safetensors to a committed checkpoint of step 0: the model's weights, and moments that are zero.
#include <string>
#include <vector>

#include "checkpoint/io/whole_file.hpp"

namespace holdfast::checkpoint {

struct ImportOrder {
  /// A .safetensors file, the .index.json of a sharded one, or a folder with either (model.safetensors,
  /// model.safetensors.index.json).
  fs::path source;
  fs::path checkpoints;              ///< folder that gets step-00000000; made when it is not there
  std::vector<LogicalTensor> model;  ///< what the model consists of: Hugging Face names, without a family
  bool tied = false;  ///< the head reads the embedding: lm_head.weight may be there, equal to it
  DType moments = DType::fp32;
  Facts facts;  ///< but for data_identity, which says what was imported
  /// Of a shard file; twice as much is held in memory. 0: a 64th of all, from 256 MiB to 1 GiB.
  std::int64_t shard_bytes = 0;
};

struct Imported {
  fs::path path;                     ///< step-00000000, durable
  std::int64_t bytes = 0;            ///< of its shards
  std::vector<std::string> skipped;  ///< tensors that the file has and the model computes itself
};

/// Elements of type F32 are taken as they are; BF16 and F16 are widened, which is exact; F64 is rounded to
/// the nearest. Throws Error (usage) when the files are not usable or not of this model (a tensor is missing,
/// has another shape or type, or is not known), or when step 0 is there already; runtime when something
/// cannot be read or written. Nothing is left behind then.
Imported import_safetensors(const ImportOrder& order, const CopyProgress& progress = {});

}  // namespace holdfast::checkpoint
