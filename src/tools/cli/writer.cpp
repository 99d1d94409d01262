#include "src/tools/cli/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/data/tokenizer_files.hpp"
#include "src/tools/cli/run_settings.hpp"
#include "src/tools/infer/token_ids.hpp"

namespace holdfast::tool {

namespace {

namespace fs = std::filesystem;

bool has_tokenizer(const fs::path& folder) { return !data::tokenizer_files(folder).empty(); }

fs::path folder_of_tokenizer(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return path;
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// The one that was named, else the one that lies beside the adapters or the model, else the one that made
/// the run's tokens.
fs::path tokenizer_path(const GenerateOrder& order, const weights::MergedFiles& files) {
  if (!order.tokenizer.empty()) return order.tokenizer;
  if (files.adapters() != nullptr && has_tokenizer(files.adapters()->path())) return files.adapters()->path();
  if (has_tokenizer(files.base().path())) return files.base().path();
  const fs::path& path = path_of(files, order.model);
  if (const auto run = run_config_of(path))
    if (const fs::path known = tokenizer_of(*run); !known.empty()) return known;
  throw Error(
      Exit::usage, "there is no tokenizer beside " + path.string(),
      files.base().manifest() != nullptr ? "nor do the run's tokens name one that is still there" : "",
      "Name it with --tokenizer: a folder, a tokenizer.json or a SentencePiece model");
}

}  // namespace

Writer::Writer(const GenerateOrder& order)
    : order_(order),
      files_(weights::MergedFiles::open(order.model.path, order.model.adapters, order.model.base)) {
  open_tokenizer(order);
}

void Writer::open_tokenizer(const GenerateOrder& order) {
  const fs::path path = tokenizer_path(order, files_), folder = folder_of_tokenizer(path);
  tokenizer_ = text::open_tokenizer(path);
  const int known = tokenizer_->vocabulary(), vocabulary = files_.shape().vocabulary;
  if (known > vocabulary)
    throw Error(Exit::usage, fmt::format("{} is not this model's tokenizer", path.string()),
                fmt::format("it has {} tokens, and the model {}", known, vocabulary),
                "Name the right one with --tokenizer?");
  if (order.chat) template_.emplace(chat::open_template(folder));
  infer::TokenIds ids;
  std::error_code ignored;
  for (const fs::path& from : {files_.base().path(), folder})
    if (ids.said_by.empty() && fs::is_directory(from, ignored)) ids = infer::token_ids_of(from);
  if (const std::string says = infer::disagreement(ids, *tokenizer_); !says.empty())
    std::cerr << fmt::format("holdfast: {}. Is this the model's tokenizer?\n", says);
  ends_ = infer::ends_of(ids, *tokenizer_);
  // A model that was taught to chat beside the configuration of its base ends its turns as its tokenizer
  // says.
  if (const auto end = tokenizer_->document_end(); order.chat && end) ends_.push_back(*end);
}

std::vector<text::Token> Writer::tokens_of(const Prompt& prompt) const {
  auto tokens = tool::tokens_of(prompt, *tokenizer_, template_ ? &*template_ : nullptr);
  if (static_cast<std::int64_t>(tokens.size()) >= max_sequence())
    throw Error(Exit::usage, fmt::format("a prompt has {} tokens", tokens.size()),
                fmt::format("the model's longest sequence is {}", max_sequence()), "Shorten it?");
  return tokens;
}

void Writer::load(std::int64_t positions) {
  parameters_.emplace(load_merged(files_, dtype_of(order_.dtype)));
  kernels_ = kernels::make_cpu_kernels();
  decoder_.emplace(*parameters_, *kernels_, order_.batch, std::min(positions, max_sequence()));
}

std::vector<infer::Answer> Writer::answer(std::span<const std::vector<text::Token>> prompts,
                                          std::uint64_t first_number, const infer::Listener& listener) {
  expects(decoder_.has_value(), "the model is loaded");
  infer::Settings settings;
  settings.sampling = order_.sampling;
  settings.max_tokens = order_.max_tokens;
  settings.ends = ends_;
  settings.first_number = first_number;
  const auto begin = Clock::now();
  auto answers = infer::generate(*decoder_, files_.shape().vocabulary, prompts, settings, listener);
  seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
  texts_ += std::ssize(prompts);
  for (const auto& prompt : prompts) read_ += std::ssize(prompt);
  for (const auto& answer : answers) written_ += std::ssize(answer.tokens);
  return answers;
}

void Writer::say_speed() const {
  if (written_ == 0) return;
  std::cerr << fmt::format("holdfast: {} tokens for {} prompt{} of {} in {:.2f} s: {:.1f} tokens/s ({})\n",
                           written_, texts_, texts_ == 1 ? "" : "s", read_, seconds_,
                           static_cast<double>(written_) / std::max(seconds_, 1e-9), order_.dtype);
}

}  // namespace holdfast::tool
