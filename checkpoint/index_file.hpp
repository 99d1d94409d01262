#pragma once
// index.h5: whole tensors as virtual datasets over the shards, for h5py, h5dump and people. Never read by the
// loader.
#include <span>
#include <string>

#include "checkpoint/state.hpp"

namespace holdfast::checkpoint {

/// The bytes of index.h5: they depend on the layout alone. Touches no disk. Throws Error when HDF5 cannot.
std::string index_text(std::span<const LogicalTensor> tensors, const WriterLayout& layout);

}  // namespace holdfast::checkpoint
