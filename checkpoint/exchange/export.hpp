#pragma once
// What tensors become in files of other formats, as plans for write_whole_files(). Their elements keep their
// bits, or are rounded to fewer; the same tensors give the same file.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/index/manifest.hpp"
#include "checkpoint/io/whole_file.hpp"

namespace holdfast::checkpoint {

/// What the model's tensors become in other files, one type for each in the order of the manifest: `type`, or
/// else what they were before they were imported, or fp32, as they are.
std::vector<Element> types_of_model(const Manifest& manifest, std::optional<Element> type);

/// One file of a Hugging Face folder.
struct ModelFile {
  std::string name;                  ///< model.safetensors, or model-00001-of-00002.safetensors
  std::vector<std::string> tensors;  ///< in it, by their Hugging Face names
  WholeFile file;
};
/// Model weights ("model/NAME" of `tensors`) under their Hugging Face names, in as many files as it takes
/// when none is to hold tensors of more than `max_bytes`, unless it holds one alone. `types`: one for each.
/// This and the next two throw Error (usage) when there are none.
std::vector<ModelFile> plan_model_files(std::span<const LogicalTensor> tensors,
                                        std::span<const Element> types, std::int64_t max_bytes);

/// What the header of a safetensors file says beside the tensors.
struct SafetensorsLabels {
  std::string prefix;  ///< before every name
  /// Loaders look for "format" before they trust a file with their framework's conventions.
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
};
/// The same as one safetensors file.
WholeFile plan_safetensors(std::span<const LogicalTensor> tensors, std::span<const Element> types,
                           const SafetensorsLabels& labels = {});

/// The same as one file that both formats accept: an HDF5 user block holds the safetensors header, and a U8
/// tensor "__hdf5_meta__" covers HDF5's metadata. FORMAT.md, "Files for others". `type`: fp32 or bf16.
WholeFile plan_polyglot(std::span<const LogicalTensor> tensors, DType type);

/// All tensors of a checkpoint, model and moments, as contiguous datasets of one plain HDF5 file, with the
/// step and the facts as attributes of its root.
WholeFile plan_consolidated(const Manifest& manifest);

}  // namespace holdfast::checkpoint
