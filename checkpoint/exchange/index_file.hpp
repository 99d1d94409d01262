#pragma once
// index.h5: whole tensors as virtual datasets over the shards, for h5py, h5dump and people. Made when
// somebody asks for it; never read by the loader.
#include <filesystem>
#include <string>

#include "checkpoint/index/manifest.hpp"

namespace holdfast::checkpoint {

/// The bytes of index.h5, in which tensors have the shapes of shape_of(): they depend on tensors and layout
/// alone. A piece costs 130 bytes and ten microseconds. Touches no disk. Throws Error when HDF5 cannot.
std::string index_text(const Manifest& manifest);

/// Makes index.h5 of a committed checkpoint, or makes it again; durable, and whole at every moment. Nothing
/// is done up to version 4, whose checkpoints were written with one. Throws Error.
void write_index(const fs::path& step_dir, const Manifest& manifest);

}  // namespace holdfast::checkpoint
