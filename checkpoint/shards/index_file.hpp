#pragma once
// index.h5: whole tensors as virtual datasets over the shards, for h5py, h5dump and people. Never read by the
// loader.
#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/index/state.hpp"

namespace holdfast::checkpoint {

/// A source costs 130 bytes and ten microseconds: with thousands of tensors over a thousand writers the index
/// would be larger than a shard. Of more pieces than this it shows what people look at: the model.
inline constexpr std::int64_t max_indexed_pieces = 131072;

/// Whether the index of a checkpoint of so many pieces has this tensor.
bool is_indexed(const LogicalTensor& tensor, std::int64_t pieces,
                std::int64_t max_pieces = max_indexed_pieces);

/// The bytes of index.h5: they depend on the layout alone. Touches no disk. Throws Error when HDF5 cannot.
std::string index_text(std::span<const LogicalTensor> tensors, const WriterLayout& layout,
                       std::int64_t max_pieces = max_indexed_pieces);

}  // namespace holdfast::checkpoint
