// export_folder() plans the files of weights, makes an AsideFolder beside the target, and fills it: the files
// of the tokenizer, generation_config.json, config.json, and the weights, with an index if they are several
// files. commit() syncs the folder and gives it its name by one rename. Until then the target does not exist,
// or is the empty folder that it was, and an exception removes what was written. export_adapters() does the
// same with the two files of peft.
//
// The tokens that begin and end texts are found on the way: in the tokenizer's config.json, in that of the
// model this one was made of, or in the tokenizer itself. A tokenizer of Hugging Face's that Holdfast cannot
// read is copied all the same; like a config that it cannot read, it only says nothing of them.
#include "src/tools/cli/ckpt_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "checkpoint/index/safetensors_index.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/hf_config.hpp"
#include "src/config/peft_config.hpp"
#include "src/data/tokenizer_files.hpp"
#include "src/tools/cli/ckpt_paths.hpp"
#include "src/tools/text/sentencepiece_json.hpp"
#include "src/weights/adapter_files.hpp"

namespace holdfast::tool {
namespace {

using checkpoint::Element;
using checkpoint::TensorSource;
namespace safetensors = checkpoint::safetensors;

constexpr const char* config_of_tokenizer = "tokenizer_config.json";
/// What a folder may have beside the files of a tokenizer.
constexpr std::array beside_tokenizers = {
    config_of_tokenizer,       "vocab.json",        "merges.txt", "added_tokens.json", "chat_template.jinja",
    "special_tokens_map.json", "chat_template.json"};
constexpr const char* generation_name = "generation_config.json";
constexpr mode_t readable = 0644;

/// A folder that gets its name when it is whole; until then it lies beside it, and goes away with the object.
class AsideFolder {
 public:
  explicit AsideFolder(const fs::path& target) : target_(target) {
    std::error_code error;
    if (files::entry_exists_or_fail(target) && !(fs::is_directory(target) && fs::is_empty(target, error)))
      throw Error(Exit::usage, target.string() + " exists", "nothing is overwritten", "Choose another name?");
    const fs::path parent = parent_of(target);
    if (!fs::is_directory(parent, error))
      throw Error(Exit::usage, "cannot write " + target.string(), parent.string() + " is not a folder");
    aside_ = files::name_aside(parent / ("." + target.filename().string()));
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

/// What a folder's config.json says of the ids that begin and end texts: that of the tokenizer, or else that
/// of the model. One of a model that we could not compute is none of our business here.
config::HfTokenIds ids_of(const FolderOptions& options) {
  for (const fs::path& folder : {options.tokenizer, options.made_of}) {
    if (folder.empty()) continue;
    try {
      if (const auto config = config::find_hf_config(folder)) return config::load_hf_config(*config).ids;
    } catch (const Error&) {
    }
  }
  return {};
}

/// Returns whether there was one.
bool copy_small(const fs::path& from, const fs::path& to, const fs::path& name) {
  std::error_code ignored;
  if (from.empty() || !fs::is_regular_file(from / name, ignored)) return false;
  files::replace_atomically(to / name, files::read_text(from / name), readable);
  return true;
}

config::HfTokenIds ids_of(std::optional<text::Token> begins, std::optional<text::Token> ends) {
  config::HfTokenIds out;
  if (begins) out.bos = std::to_string(*begins);
  if (ends) out.eos = std::to_string(*ends);
  return out;
}

/// A SentencePiece model, and the files with which transformers uses it where it can.
config::HfTokenIds write_own_tokenizer(const fs::path& model, const fs::path& to,
                                       std::optional<int> max_tokens) {
  const std::string bytes = files::read_text(model);
  const auto hf = text::hf_files_of_sentencepiece(bytes, model.string(), max_tokens);
  files::replace_atomically(to / "tokenizer.model", bytes, readable);
  if (!hf) return {};
  files::replace_atomically(to / "tokenizer.json", hf->tokenizer, readable);
  files::replace_atomically(to / config_of_tokenizer, hf->config, readable);
  return ids_of(hf->begins, hf->ends);
}

/// Where `folder` has a tokenizer.json and nothing that says how transformers is to use it.
void complete_tokenizer(const text::Tokenizer& tokenizer, const fs::path& folder, int max_tokens) {
  if (!files::exists_or_fail(folder / "tokenizer.json") ||
      files::exists_or_fail(folder / config_of_tokenizer))
    return;
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"clean_up_tokenization_spaces", false},
                                   {"model_max_length", max_tokens}};
  const auto name = [&](const char* key, std::optional<text::Token> token) {
    if (token) config[key] = tokenizer.decode({&*token, 1}, true);
  };
  name("bos_token", tokenizer.document_start());
  name("eos_token", tokenizer.document_end());
  files::replace_atomically(folder / config_of_tokenizer, config.dump(2) + "\n", readable);
}

/// As ids_of(options) where that says how texts end, else as the tokenizer in `folder` does, if we can read
/// it.
config::HfTokenIds ids_in(const fs::path& folder, config::HfTokenIds ids, int max_tokens) {
  if (data::tokenizer_files(folder).empty()) return ids;
  try {
    const auto tokenizer = text::open_tokenizer(folder);
    complete_tokenizer(*tokenizer, folder, max_tokens);
    if (ids.eos == "null") return ids_of(tokenizer->document_start(), tokenizer->document_end());
  } catch (const Error&) {
  }
  return ids;
}

/// So that transformers' generate() ends texts; padding counts as nothing there.
void write_generation_config(const fs::path& folder, const config::HfTokenIds& ids) {
  if (ids.eos == "null" || files::exists_or_fail(folder / generation_name)) return;
  const auto id = [](const std::string& text) { return json_from<nlohmann::ordered_json>(text); };
  const auto eos = id(ids.eos);
  const nlohmann::ordered_json config = {{"bos_token_id", id(ids.bos)},
                                         {"eos_token_id", eos},
                                         {"pad_token_id", eos.is_array() ? eos.front() : eos}};
  files::replace_atomically(folder / generation_name, config.dump(2) + "\n", readable);
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  const auto tokenizer = data::tokenizer_files(from);
  if (tokenizer.empty())
    throw Error(Exit::usage, from.string() + " holds no tokenizer",
                "there is no tokenizer.json, no tokenizer.model, and not one NAME.model either");
  for (const fs::path& file : tokenizer) copy_small(from, to, file.filename());
  for (const char* name : beside_tokenizers) copy_small(from, to, name);
}

void write_files(TensorSource& source, std::span<const checkpoint::NamedFile> files) {
  checkpoint::write_whole_files(source, files, bar("export"));
  for (const checkpoint::NamedFile& file : files) fs::permissions(file.target, fs::perms(readable));
}

}  // namespace

ExportedFolder export_folder(TensorSource& source, const config::ModelShape& shape,
                             std::span<const Element> types, const fs::path& target,
                             const FolderOptions& options) {
  auto plan = checkpoint::plan_model_files(source.tensors(), types, options.shard_bytes);
  AsideFolder folder(target);
  config::HfTokenIds ids;
  if (const auto own = text::find_own_model(options.tokenizer)) {
    ids = write_own_tokenizer(*own, folder.path(), shape.max_sequence);
  } else {
    if (!options.tokenizer.empty()) copy_tokenizer(options.tokenizer, folder.path());
    if (!copy_small(options.tokenizer, folder.path(), generation_name))
      copy_small(options.made_of, folder.path(), generation_name);
    ids = ids_in(folder.path(), ids_of(options), shape.max_sequence);
  }
  write_generation_config(folder.path(), ids);
  ExportedFolder out;
  out.files = static_cast<int>(plan.size());
  out.dtype = hf_dtype(types.front());
  files::replace_atomically(folder.path() / "config.json", config::hf_config_text(shape, out.dtype, ids),
                            readable);
  std::vector<checkpoint::NamedFile> named;
  safetensors::WeightMap map;
  std::int64_t tensor_bytes = 0;
  for (checkpoint::ModelFile& file : plan) {
    for (const std::string& tensor : file.tensors) map[tensor] = file.name;
    tensor_bytes += file.file.bytes - static_cast<std::int64_t>(file.file.head.size());
    out.bytes += file.file.bytes;
    named.push_back({std::move(file.file), folder.path() / file.name});
  }
  write_files(source, named);
  if (named.size() > 1)
    files::replace_atomically(folder.path() / safetensors::index_name,
                              safetensors::index_text(map, tensor_bytes), readable);
  folder.commit();
  return out;
}

ExportedFolder export_adapters(TensorSource& source, const config::AdapterFacts& facts,
                               std::span<const Element> types, const fs::path& target,
                               const fs::path& tokenizer) {
  checkpoint::SafetensorsLabels labels;
  labels.prefix = weights::peft_prefix;
  if (!facts.base_digest.empty()) labels.metadata[weights::peft_base_digest] = facts.base_digest;
  auto plan = checkpoint::plan_safetensors(source.tensors(), types, labels);
  AsideFolder folder(target);
  if (const auto own = text::find_own_model(tokenizer))
    write_own_tokenizer(*own, folder.path(), {});
  else if (!tokenizer.empty())
    copy_tokenizer(tokenizer, folder.path());
  files::replace_atomically(folder.path() / weights::peft_config_name, config::peft_config_text(facts),
                            readable);
  ExportedFolder out{plan.bytes, 1, hf_dtype(types.front())};
  const checkpoint::NamedFile one[] = {{std::move(plan), folder.path() / weights::peft_weights_name}};
  write_files(source, one);
  folder.commit();
  return out;
}

}  // namespace holdfast::tool
