#include "src/tool/ckpt_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors_index.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/config/hf_config.hpp"
#include "src/config/load.hpp"
#include "src/tool/ckpt_paths.hpp"

namespace holdfast::tool {
namespace {

using checkpoint::Element;
using checkpoint::Manifest;
namespace safetensors = checkpoint::safetensors;

constexpr std::array tokenizer_files = {"tokenizer.json",
                                        "tokenizer.model",
                                        "tokenizer_config.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "added_tokens.json",
                                        "chat_template.jinja",
                                        "special_tokens_map.json",
                                        "generation_config.json"};
constexpr mode_t readable = 0644;

/// A folder that gets its name when it is whole; until then it lies beside it, and goes away with the object.
class AsideFolder {
 public:
  explicit AsideFolder(const fs::path& target) : target_(target) {
    std::error_code error;
    if (fs::exists(fs::symlink_status(target)) && !(fs::is_directory(target) && fs::is_empty(target, error)))
      throw Error(Exit::usage, target.string() + " exists", "nothing is overwritten", "Choose another name?");
    const fs::path parent = parent_of(target);
    if (!fs::is_directory(parent, error))
      throw Error(Exit::usage, "cannot write " + target.string(), parent.string() + " is not a folder");
    aside_ = parent / ("." + target.filename().string() + ".tmp-" + std::to_string(::getpid()));
    fs::remove_all(aside_, error);  // of a process that had our number and was killed
    if (::mkdir(aside_.c_str(), 0755) != 0) throw system_error("cannot create " + aside_.string(), errno);
  }
  AsideFolder(const AsideFolder&) = delete;
  AsideFolder& operator=(const AsideFolder&) = delete;
  ~AsideFolder() {
    std::error_code ignored;
    if (!kept_) fs::remove_all(aside_, ignored);
  }
  const fs::path& path() const { return aside_; }
  void commit() {
    files::sync_folder(aside_);
    // Replaces nothing but an empty folder.
    if (::rename(aside_.c_str(), target_.c_str()) != 0)
      throw system_error("cannot name " + target_.string(), errno);
    kept_ = true;
    files::sync_folder(parent_of(target_));
  }

 private:
  static fs::path parent_of(const fs::path& path) {
    return path.has_parent_path() ? path.parent_path() : fs::path(".");
  }
  fs::path target_, aside_;
  bool kept_ = false;
};

const char* hf_dtype(Element type) {
  return type == Element::bf16 ? "bfloat16" : type == Element::f16 ? "float16" : "float32";
}

/// What the tokenizer's folder says of the ids that begin and end texts. A config.json of a model that we
/// could not compute is none of our business here.
config::HfTokenIds ids_of(const fs::path& tokenizer) {
  if (tokenizer.empty()) return {};
  try {
    if (const auto config = config::find_hf_config(tokenizer)) return config::load_hf_config(*config).ids;
  } catch (const Error&) {
  }
  return {};
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  bool any = false;
  for (const char* name : tokenizer_files) {
    std::error_code ignored;
    if (!fs::is_regular_file(from / name, ignored)) continue;
    files::replace_atomically(to / name, files::read_text(from / name), readable);
    any = any || std::string_view(name).starts_with("tokenizer.");
  }
  if (!any)
    throw Error(Exit::usage, from.string() + " holds no tokenizer",
                "there is neither tokenizer.json nor tokenizer.model in it");
}

}  // namespace

ExportedFolder export_folder(const fs::path& step_dir, const Manifest& manifest,
                             std::span<const Element> types, const fs::path& target,
                             const FolderOptions& options) {
  const config::ModelShape shape = config::parse_model(manifest.facts.model_toml, "the checkpoint's model");
  auto plan = checkpoint::plan_model_files(manifest, types, options.shard_bytes);
  AsideFolder folder(target);
  if (!options.tokenizer.empty()) copy_tokenizer(options.tokenizer, folder.path());
  ExportedFolder out;
  out.files = static_cast<int>(plan.size()), out.dtype = hf_dtype(types.front());
  files::replace_atomically(folder.path() / "config.json",
                            config::hf_config_text(shape, out.dtype, ids_of(options.tokenizer)), readable);
  std::vector<checkpoint::NamedFile> named;
  safetensors::WeightMap map;
  std::int64_t tensor_bytes = 0;
  for (checkpoint::ModelFile& file : plan) {
    for (const std::string& tensor : file.tensors) map[tensor] = file.name;
    tensor_bytes += file.file.bytes - static_cast<std::int64_t>(file.file.head.size());
    out.bytes += file.file.bytes;
    named.push_back({std::move(file.file), folder.path() / file.name});
  }
  checkpoint::write_whole_files(step_dir, manifest, named, bar("export"));
  for (const checkpoint::NamedFile& file : named) fs::permissions(file.target, fs::perms(readable));
  if (named.size() > 1)
    files::replace_atomically(folder.path() / safetensors::index_name,
                              safetensors::index_text(map, tensor_bytes), readable);
  folder.commit();
  return out;
}

}  // namespace holdfast::tool
