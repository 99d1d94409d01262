#include "checkpoint/index/safetensors_contents.hpp"

#include <set>
#include <system_error>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/lfs_pointer.hpp"

namespace holdfast::checkpoint::safetensors {

Contents::Contents(const fs::path& path) : path_(path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (path.extension() == ".json")
      add_index(path);
    else
      add(path);
    return;
  }
  const bool sharded = fs::exists(path / index_name, ignored),
             whole = fs::exists(path / single_name, ignored);
  if (sharded && whole)
    throw Error(Exit::usage, path.string() + " holds two models",
                std::string("there are ") + single_name + " and " + index_name + " in it",
                "Name the one of these files that is meant?");
  if (fs::exists(path / "adapter_config.json", ignored) && (sharded || whole))
    throw Error(Exit::usage, path.string() + " holds weights and adapters",
                "there is an adapter_config.json beside them, and other programs add those adapters",
                "Move the adapters into a folder of their own?");
  if (sharded) {
    add_index(path / index_name);
  } else if (whole) {
    add(path / single_name);
  } else {
    const bool pickled = fs::exists(path / "pytorch_model.bin", ignored) ||
                         fs::exists(path / "pytorch_model.bin.index.json", ignored);
    throw Error(Exit::usage, path.string() + " holds no safetensors files",
                std::string("there is neither ") + single_name + " nor " + index_name + " in it",
                pickled ? "It has pytorch_model.bin: save the model again as safetensors (save_pretrained)?"
                        : "Name a Hugging Face folder, a safetensors file, a checkpoint or a run?");
  }
}

void Contents::add(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) throw Error(Exit::usage, "there is no file " + path.string());
  File file{path, read_header(path)};
  for (std::size_t i = 0; i < file.header.tensors.size(); ++i) {
    const std::string& name = file.header.tensors[i].name;
    const auto [there, is_new] = places_.emplace(name, std::pair(files_.size(), i));
    if (!is_new)
      throw Error(Exit::usage, "tensor " + name + " is there twice",
                  "in " + files_[there->second.first].path.string() + " and in " + path.string());
    names_.push_back(name);
  }
  files_.push_back(std::move(file));
}

void Contents::add_index(const fs::path& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) throw Error(Exit::usage, "cannot read " + path.string(), error.message());
  if (static_cast<std::int64_t>(bytes) > largest_index)
    throw Error(Exit::usage, path.string() + " is not a usable index of safetensors files",
                "it has " + std::to_string(bytes) + " bytes");
  const std::string text = files::read_text(path);
  refuse_lfs_pointer(path, text);
  const WeightMap map = parse_index(text, path.string());
  std::set<std::string> names;
  for (const auto& [tensor, file] : map) names.insert(file);
  for (const std::string& name : names) add(path.parent_path() / name);
  const auto refuse = [&](const std::string& why) {
    throw Error(Exit::usage, path.string() + " is not a usable index of safetensors files", why);
  };
  for (const auto& [tensor, file] : map) {
    if (!has(tensor)) refuse(tensor + " is in none of its files");
    if (files_[places_.at(tensor).first].path.filename() != file) refuse(tensor + " is not in " + file);
  }
}

const Tensor& Contents::tensor(const std::string& name) const {
  const auto [file, index] = places_.at(name);
  return files_[file].header.tensors[index];
}

std::int64_t Contents::tensor_bytes() const {
  std::int64_t sum = 0;
  for (const File& file : files_)
    for (const Tensor& tensor : file.header.tensors) sum += tensor.bytes;
  return sum;
}

std::uint64_t Contents::identity() const {
  std::uint64_t sum = 0;
  for (const auto& [name, place] : places_) {
    const Tensor& tensor = files_[place.first].header.tensors[place.second];
    std::string text = tensor.dtype;
    for (const std::int64_t extent : tensor.shape) text += " " + std::to_string(extent);
    text += " at " + std::to_string(tensor.first) + " of " + files_[place.first].path.filename().string();
    sum = combine_digests(sum, hash_name(name.data(), name.size()), hash_name(text.data(), text.size()));
  }
  return sum;
}

}  // namespace holdfast::checkpoint::safetensors
