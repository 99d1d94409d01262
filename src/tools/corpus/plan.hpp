#pragma once
// What there is to do, before anything is done: the same on every machine that sees the same files.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/tools/corpus/crew.hpp"
#include "src/tools/corpus/inputs.hpp"
#include "src/tools/corpus/settings.hpp"
#include "src/tools/corpus/work_folder.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace holdfast::corpus {

/// What the work needs of others; tests put their own in.
struct Services {
  std::function<std::unique_ptr<text::Tokenizer>(const std::filesystem::path&)> open_tokenizer;
  /// Bytes of a SentencePiece model of `vocabulary` pieces, trained on what `next` gives until it returns
  /// false: pieces of `bytes` bytes of text in all.
  std::function<std::string(int vocabulary, std::uint64_t bytes,
                            const std::function<bool(std::string&)>& next)>
      train_model;
  /// Bytes that may still be written beside this path.
  std::function<std::uint64_t(const std::filesystem::path&)> free_bytes;
  Watch watch;
};

struct Plan {
  Settings settings;  ///< with Split::automatic and Long::automatic decided
  std::vector<Input> inputs;
  std::vector<std::filesystem::path> left_out;  ///< see Inputs
  std::vector<Part> parts;
  Border border;  ///< Split::tail
  WorkFolder work;
  std::shared_ptr<const text::Tokenizer> tokenizer;  ///< null: not yet trained, or own tokens without one

  std::int64_t vocabulary() const;
  /// Hash of the tokenizer's file, zero when unknown.
  data::Hash128 tokenizer_identity() const;
  /// Folder with the chat template.
  std::filesystem::path chat_folder() const;
};

/// Lists and checks everything that can be checked without reading the corpus; writes nothing. Throws Error
/// (usage).
Plan plan_of(Settings settings, const Services& services);

/// Throws Error (runtime) when the output cannot fit on its disk: a token stands for about four bytes of
/// text, and every token is on the disk twice while parts are merged.
void check_space(const Plan& plan, const Services& services);
/// statvfs(3) of the folder that `path` is in.
std::uint64_t free_bytes_beside(const std::filesystem::path& path);

}  // namespace holdfast::corpus
