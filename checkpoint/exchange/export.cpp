// A plan is made in three steps: which tensors and in which types, in which order, and at which offset each
// of them lies. No tensor is read and no file is written here; a plan that would be wrong is an Error.
//
// In a safetensors file the wide types come first, so that no tensor needs padding, and the offsets follow
// from the length of the header. For files of HDF5, lay_out_hdf5() lets HDF5 make the file in memory, with
// datasets that are allocated and never filled, and reads metadata and offsets off it. If HDF5 had to put
// metadata behind the data, the layout is tried again with more room before it, twelve times at most.
//
// plan_polyglot() reserves a user block before the metadata in the same way, and then writes the safetensors
// header into it. It checks that no gap lies between two tensors, which HDF5 may leave and safetensors
// forbids.
#include "checkpoint/exchange/export.hpp"

#include <algorithm>
#include <bit>

#include "checkpoint/index/safetensors.hpp"
#include "checkpoint/index/safetensors_index.hpp"
#include "checkpoint/index/safetensors_model.hpp"
#include "checkpoint/io/memory_file.hpp"
#include "checkpoint/shards/h5.hpp"
#include "src/base/as_size.hpp"

namespace holdfast::checkpoint {
namespace {

constexpr std::int64_t page = 4096;

using Tensors = std::span<const LogicalTensor>;

bool is_of_model(const LogicalTensor& tensor) { return tensor.name.starts_with(model_family); }

std::size_t count_of_model(Tensors tensors) { return as_size(std::ranges::count_if(tensors, is_of_model)); }

/// The model's tensors, in the order of `tensors`, without places. `types`: one for each.
std::vector<PlacedTensor> model_of(Tensors tensors, std::span<const Element> types) {
  expects(types.size() == count_of_model(tensors), "there is a type for each tensor of the model");
  std::vector<PlacedTensor> model;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (!is_of_model(tensors[t])) continue;
    const bool wide = tensors[t].type == DType::fp32;
    model.push_back({static_cast<int>(t), wide ? types[model.size()] : element_of(tensors[t]), 0});
  }
  if (model.empty())
    throw Error(Exit::usage, "there is no model to export", "no tensor's name begins with model/");
  return model;
}

/// Wide elements first, so that all begin on a multiple of their size without gaps.
void put_wide_first(std::vector<PlacedTensor>& model) {
  std::stable_sort(model.begin(), model.end(),
                   [](const auto& a, const auto& b) { return bytes_of(a.type) > bytes_of(b.type); });
}

const LogicalTensor& tensor_of(Tensors tensors, const PlacedTensor& placed) { return tensors[placed.tensor]; }

std::string hf_name(Tensors tensors, const PlacedTensor& placed) {
  return tensor_of(tensors, placed).name.substr(model_family.size());
}

std::int64_t bytes_in_file(Tensors tensors, const PlacedTensor& placed) {
  return tensor_of(tensors, placed).elements() * bytes_of(placed.type);
}

std::vector<safetensors::Tensor> entries_of(Tensors tensors, const std::vector<PlacedTensor>& model,
                                            const std::string& prefix = {}) {
  std::vector<safetensors::Tensor> entries;
  for (const PlacedTensor& placed : model)
    entries.push_back({prefix + hf_name(tensors, placed), std::string(name_of(placed.type)),
                       shape_of(tensor_of(tensors, placed)), 0, bytes_in_file(tensors, placed)});
  return entries;
}

WholeFile safetensors_of(Tensors tensors, std::vector<PlacedTensor> model, const SafetensorsLabels& labels) {
  WholeFile file;
  put_wide_first(model);
  file.tensors = std::move(model);
  auto entries = entries_of(tensors, file.tensors, labels.prefix);
  file.head = safetensors::header_text(entries, labels.metadata);
  file.bytes = static_cast<std::int64_t>(file.head.size());
  for (PlacedTensor& placed : file.tensors) {
    placed.offset = file.bytes;
    file.bytes += bytes_in_file(tensors, placed);
  }
  return file;
}

/// Takes empty tensors out: HDF5 has no place for them. Returns the names of the others, cut by a prefix.
std::vector<std::string> keep_filled(Tensors tensors, std::vector<PlacedTensor>& placed_tensors,
                                     std::size_t prefix) {
  std::erase_if(placed_tensors, [&](const auto& placed) { return bytes_in_file(tensors, placed) == 0; });
  if (placed_tensors.empty()) throw Error(Exit::usage, "there is nothing to export", "every tensor is empty");
  std::vector<std::string> names;
  for (const PlacedTensor& placed : placed_tensors)
    names.push_back(tensor_of(tensors, placed).name.substr(prefix));
  return names;
}

std::int64_t end_of(Tensors tensors, const PlacedTensor& placed) {
  return placed.offset + bytes_in_file(tensors, placed);
}

h5::Element h5_element_of(Element type) {
  expects(type == Element::f32 || type == Element::bf16, "HDF5 files of ours hold fp32 and bf16");
  return h5::element_of(type == Element::f32 ? DType::fp32 : DType::bf16);
}

void place_datasets(hid_t h5_file, Tensors tensors, WholeFile& file, const std::vector<std::string>& names) {
  h5::ContiguousMaker datasets(h5_file);
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    PlacedTensor& placed = file.tensors[i];
    placed.offset = datasets.make(names[i], h5_element_of(placed.type), shape_of(tensor_of(tensors, placed)));
  }
}

/// Asks HDF5 for a file with the tensors of `file` as datasets `names`: fills in their places, the metadata
/// as `head`, and `bytes`. All metadata lies before all data. None of the tensors is empty.
template <class Attributes>
void lay_out_hdf5(Tensors tensors, WholeFile& file, const std::vector<std::string>& names,
                  h5::FileSpace space, Attributes write_attributes) {
  std::size_t name_bytes = 0;
  for (const std::string& name : names) name_bytes += name.size();
  // A first guess at the metadata; when HDF5 needs more it goes behind the data, and we ask again.
  auto pages = static_cast<std::uint64_t>(2 + (name_bytes + 400 * names.size()) / page);
  for (int attempt = 0; attempt < 12; ++attempt, pages *= 2) {
    const MemoryFile memory;
    space.metadata_bytes = pages * page;
    h5::Id h5_file = h5::create_file(memory.path(), space);
    write_attributes(h5_file.get());
    place_datasets(h5_file.get(), tensors, file, names);
    h5::close_file(std::move(h5_file));
    file.bytes = memory.bytes();
    const bool in_order = std::is_sorted(file.tensors.begin(), file.tensors.end(),
                                         [](const auto& a, const auto& b) { return a.offset < b.offset; });
    const std::int64_t first = file.tensors.front().offset;
    if (!in_order || end_of(tensors, file.tensors.back()) > file.bytes || !memory.zero_from(first)) continue;
    file.head = memory.read(0, first);
    return;
  }
  throw Error(Exit::runtime, "cannot lay out an HDF5 file", "HDF5 does not keep its metadata in one place");
}

/// The smallest user block with room for so many bytes.
std::uint64_t user_block_for(std::int64_t bytes) {
  return std::max<std::uint64_t>(512, std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

}  // namespace

std::vector<Element> types_of_model(const Manifest& manifest, std::optional<Element> type) {
  const std::size_t count = count_of_model(manifest.tensors);
  if (!type)
    if (auto types = safetensors::imported_types(manifest.facts, count)) {
      std::replace(types->begin(), types->end(), Element::f64, Element::f32);  // it was rounded
      return *types;
    }
  return std::vector<Element>(count, type.value_or(Element::f32));
}

std::vector<ModelFile> plan_model_files(Tensors tensors, std::span<const Element> types,
                                        std::int64_t max_bytes) {
  std::vector<std::vector<PlacedTensor>> parts(1);
  std::int64_t bytes = 0;
  for (const PlacedTensor& placed : model_of(tensors, types)) {
    const std::int64_t more = bytes_in_file(tensors, placed);
    if (!parts.back().empty() && more > max_bytes - bytes) {
      parts.emplace_back();
      bytes = 0;
    }
    parts.back().push_back(placed);
    bytes += more;
  }
  const int count = static_cast<int>(parts.size());
  std::vector<ModelFile> files;
  for (int i = 0; i < count; ++i) {
    ModelFile file;
    file.name = count == 1 ? safetensors::single_name : safetensors::part_name(i + 1, count);
    file.file = safetensors_of(tensors, std::move(parts[i]), {});
    for (const PlacedTensor& placed : file.file.tensors) file.tensors.push_back(hf_name(tensors, placed));
    files.push_back(std::move(file));
  }
  return files;
}

WholeFile plan_safetensors(Tensors tensors, std::span<const Element> types, const SafetensorsLabels& labels) {
  return safetensors_of(tensors, model_of(tensors, types), labels);
}

WholeFile plan_polyglot(Tensors tensors, DType type) {
  const std::vector<Element> types(count_of_model(tensors),
                                   type == DType::fp32 ? Element::f32 : Element::bf16);
  const auto metadata = SafetensorsLabels().metadata;
  WholeFile file;
  file.tensors = model_of(tensors, types);
  put_wide_first(file.tensors);
  auto entries = entries_of(tensors, file.tensors);
  const auto names = keep_filled(tensors, file.tensors, model_family.size());
  // First with more metadata than there ever is: the header with the true number is not longer.
  entries.insert(entries.begin(), {hdf5_meta_tensor, "U8", {INT32_MAX}, 0, INT32_MAX});
  h5::FileSpace space;
  space.user_block =
      user_block_for(static_cast<std::int64_t>(safetensors::header_text(entries, metadata).size()));
  space.aligned_from = space.alignment = 1;  // no gaps: safetensors has none
  lay_out_hdf5(tensors, file, names, space, [](auto) {});

  const auto user_block = static_cast<std::int64_t>(space.user_block);
  const auto meta_bytes = static_cast<std::int64_t>(file.head.size()) - user_block;
  entries.front().shape = {meta_bytes};
  entries.front().bytes = meta_bytes;
  file.head.replace(0, space.user_block, safetensors::header_text(entries, metadata, user_block));
  auto next = static_cast<std::int64_t>(file.head.size());
  for (const PlacedTensor& placed : file.tensors) {
    if (placed.offset != next)
      throw Error(Exit::runtime, "cannot lay out a file for both formats",
                  "HDF5 leaves gaps between tensors");
    next = end_of(tensors, placed);
  }
  if (next != file.bytes)
    throw Error(Exit::runtime, "cannot lay out a file for both formats",
                "HDF5 wants more behind the tensors");
  return file;
}

WholeFile plan_consolidated(const Manifest& manifest) {
  WholeFile file;
  for (std::size_t t = 0; t < manifest.tensors.size(); ++t)
    file.tensors.push_back({static_cast<int>(t), element_of(manifest.tensors[t]), 0});
  const auto names = keep_filled(manifest.tensors, file.tensors, 0);
  h5::FileSpace space;
  space.aligned_from = 1;
  space.alignment = 8;  // an element never lies across two pages
  lay_out_hdf5(manifest.tensors, file, names, space, [&](auto h5_file) {
    h5::write_attribute(h5_file, "step", manifest.point.step);
    h5::write_attribute(h5_file, "tokens", manifest.point.tokens);
    h5::write_attribute(h5_file, "samples", manifest.point.samples);
    h5::write_attribute(h5_file, "state_digest", digest_text(manifest.state_digest));
    h5::write_attribute(h5_file, "numerics", manifest.facts.numerics);
    h5::write_attribute(h5_file, "model", manifest.facts.model_toml);
  });
  return file;
}

}  // namespace holdfast::checkpoint
