#pragma once
// What a checkpoint becomes in other formats, as plans for write_whole_file(). Tensors keep their bits, or
// are rounded to bf16; the same tensors give the same file.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/whole_file.hpp"

namespace holdfast::checkpoint {

/// What the model's tensors become in other files, one type for each in the order of the manifest: `type`, or
/// else what they were before they were imported, or fp32, as they are. Throws Error (usage) when the
/// checkpoint holds no model.
std::vector<Element> types_of_model(const Manifest& manifest, std::optional<Element> type);

/// One file of a Hugging Face folder.
struct ModelFile {
  std::string name;                  ///< model.safetensors, or model-00001-of-00002.safetensors
  std::vector<std::string> tensors;  ///< in it, by their Hugging Face names
  WholeFile file;
};
/// Model weights under their Hugging Face names, in as many files as it takes when none is to hold tensors of
/// more than `most_bytes`, unless it holds one alone. `types`: of types_of_model().
std::vector<ModelFile> plan_model_files(const Manifest& manifest, std::span<const Element> types,
                                        std::int64_t most_bytes);

/// The same as one safetensors file. `type`: fp32 as they are, or bf16.
/// Throws Error (usage) when the checkpoint holds no model.
WholeFile plan_safetensors(const Manifest& manifest, DType type);

/// The same as one file that both formats accept: an HDF5 user block holds the safetensors header, and a U8
/// tensor "__hdf5_meta__" covers HDF5's metadata. FORMAT.md, "Files for others".
WholeFile plan_polyglot(const Manifest& manifest, DType type);

/// All tensors, model and moments, as contiguous datasets of one plain HDF5 file, with the step and the
/// facts as attributes of its root.
WholeFile plan_consolidated(const Manifest& manifest);

/// Shape that others expect of a tensor: norms and biases have one dimension, everything else rows x cols.
std::vector<std::int64_t> shape_of(const LogicalTensor& tensor);

inline constexpr std::string_view model_family = "model/";
inline constexpr const char* hdf5_meta_tensor = "__hdf5_meta__";

}  // namespace holdfast::checkpoint
