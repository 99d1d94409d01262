#include "src/tools/corpus/settings.hpp"

#include <fmt/core.h>

#include "src/base/error.hpp"

namespace holdfast::corpus {
namespace fs = std::filesystem;
namespace {

void check_tokenizer(const Settings& settings) {
  const bool given = !settings.tokenizer.empty(), trained = settings.train_vocabulary != 0;
  if (is_tokens(settings.format)) {
    if (trained) throw Error(Exit::usage, "no tokenizer can be trained", "the input is tokens, not text");
    if (given == (settings.vocabulary != 0))
      throw Error(Exit::usage, "which vocabulary?",
                  "the input is tokens: exactly one of --vocabulary and --tokenizer is needed",
                  "Use --vocabulary 32000 for tokens of Llama 2?");
    return;
  }
  if (settings.vocabulary != 0 || settings.document_start)
    throw Error(Exit::usage, "--vocabulary and --document-start are for tokens", "the input is text");
  if (given == trained)
    throw Error(Exit::usage, "which tokenizer?",
                "exactly one of --tokenizer and --train-vocabulary is needed",
                "Use --train-vocabulary 512 for a small model?");
  if (settings.format == Format::chat && !given)
    throw Error(Exit::usage, "no tokenizer can be trained", "conversations need the model's own",
                "Give the model's folder with --tokenizer?");
}

}  // namespace

const char* name_of(Format format) {
  switch (format) {
    case Format::automatic:
      return "auto";
    case Format::text:
      return "text";
    case Format::jsonl:
      return "jsonl";
    case Format::chat:
      return "chat";
    case Format::u16:
      return "u16";
    case Format::u32:
      return "u32";
    case Format::megatron:
      return "megatron";
  }
  return "?";
}

const char* name_of(Dedupe dedupe) {
  return dedupe == Dedupe::none ? "none" : dedupe == Dedupe::exact ? "exact" : "near";
}

const char* name_of(Split split) {
  return split == Split::automatic ? "auto" : split == Split::documents ? "documents" : "tail";
}

const char* name_of(Long longer) {
  switch (longer) {
    case Long::automatic:
      return "auto";
    case Long::drop:
      return "drop";
    case Long::truncate:
      return "truncate";
    case Long::cut:
      return "cut";
  }
  return "?";
}

void check(const Settings& settings) {
  check_tokenizer(settings);
  if (!(settings.val_fraction >= 0 && settings.val_fraction < 1))
    throw Error(Exit::usage, fmt::format("--val-fraction is {}", settings.val_fraction),
                "it must be at least 0 and below 1");
  if (!(settings.similarity > 0 && settings.similarity < 1))
    throw Error(Exit::usage, fmt::format("--similarity is {}", settings.similarity),
                "it must be above 0 and below 1");
  if (settings.vocabulary < 0 || settings.vocabulary > INT32_MAX)
    throw Error(Exit::usage, fmt::format("--vocabulary is {}", settings.vocabulary),
                "it must be in [1, 2147483647]");
  if (settings.document_start && settings.format == Format::megatron)
    throw Error(Exit::usage, "--document-start cannot be given", "an .idx file says where documents begin");
  if (settings.document_start && settings.vocabulary != 0 &&
      (*settings.document_start < 0 || *settings.document_start >= settings.vocabulary))
    throw Error(Exit::usage, fmt::format("--document-start is {}", *settings.document_start),
                "it is outside the vocabulary");
  if (settings.pack != 0 && (settings.pack < 2 || settings.pack > 1 << 24))
    throw Error(Exit::usage, fmt::format("--pack is {}", settings.pack), "rows have 2 to 16777216 tokens",
                "Give the sequence length that you will train with?");
  if (settings.longer != Long::automatic && settings.pack == 0)
    throw Error(Exit::usage, "--long is for packed rows", "nothing is packed", "Add --pack N?");
  if (settings.workers < 0 || settings.workers > 4096)
    throw Error(Exit::usage, fmt::format("--workers is {}", settings.workers), "it must be in [0, 4096]");
  if (is_tokens(settings.format) && settings.dedupe == Dedupe::near)
    throw Error(Exit::usage, "near duplicates of tokens cannot be found", "they are found by words",
                "Use --dedupe exact?");
  if (!settings.chat.empty() && settings.format != Format::chat)
    throw Error(Exit::usage, "--chat is for conversations",
                std::string("the format is ") + name_of(settings.format), "Add --format chat?");
}

fs::path validation_path(const fs::path& output) {
  fs::path path = output;
  return path.replace_extension(".val" + output.extension().string());
}
fs::path card_path(const fs::path& output) { return fs::path(output) += ".card.json"; }
fs::path work_path(const fs::path& output) { return fs::path(output) += ".work"; }

fs::path model_path(const Settings& settings) {
  if (!settings.tokenizer_out.empty() || settings.train_vocabulary == 0) return settings.tokenizer_out;
  return fs::path(settings.output).replace_extension(".model");
}

std::vector<fs::path> outputs_of(const Settings& settings) {
  std::vector<fs::path> paths = {model_path(settings), card_path(settings.output),
                                 settings.val_fraction > 0 ? validation_path(settings.output) : fs::path(),
                                 settings.output};
  std::erase(paths, fs::path());
  return paths;
}

}  // namespace holdfast::corpus
