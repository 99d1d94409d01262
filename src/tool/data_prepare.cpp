#include "src/tool/data_prepare.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/data/token_file.hpp"
#include "src/tool/progress.hpp"
#include "src/tool/text_stream.hpp"
#include "src/tool/tokenizer.hpp"

namespace holdfast::tool {
namespace fs = std::filesystem;
namespace {

void check(const PrepareOptions& options) {
  if (options.tokenizer.empty() == (options.train_vocabulary == 0)) {
    throw Error(Exit::usage, "which tokenizer?",
                "exactly one of --tokenizer and --train-vocabulary is needed",
                "Use --train-vocabulary 512 for a small model?");
  }
  if (!(options.val_fraction >= 0 && options.val_fraction < 1)) {
    throw Error(Exit::usage, fmt::format("--val-fraction is {}", options.val_fraction),
                "it must be at least 0 and below 1");
  }
}

/// Before minutes of work, not after.
void expect_writable(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code error;
  const bool blocked = fs::is_directory(path, error);
  if (blocked || ::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw Error(Exit::usage, "cannot write " + path.string(),
                blocked ? "it is a folder" : std::strerror(errno), "Choose another path?");
  }
}

/// "3.4 of 12.0 MB"
std::string share(std::uint64_t done, std::uint64_t all) {
  return fmt::format("{:.1f} of {:.1f} MB", static_cast<double>(done) / 1e6, static_cast<double>(all) / 1e6);
}

std::string given_model(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw Error(Exit::usage, "cannot use tokenizer " + path.string(), "no such file",
                "Give a .model file, or train one with --train-vocabulary?");
  }
  return files::read_text(path);
}

std::string trained_model(const PrepareOptions& options, const std::vector<Document>& documents,
                          std::uint64_t train_bytes) {
  TextStream stream(documents);
  Progress progress;
  return train_tokenizer(options.train_vocabulary, train_bytes, [&](Piece& piece) {
    progress.show([&] { return "reading text for the tokenizer: " + share(piece.offset, train_bytes); });
    return stream.next(piece) && piece.offset < train_bytes;
  });
}

}  // namespace

fs::path validation_path(const fs::path& output) {
  fs::path path = output;
  return path.replace_extension(".val" + output.extension().string());
}

PrepareReport prepare(const PrepareOptions& options) {
  check(options);
  PrepareReport report;
  if (options.val_fraction > 0) report.validation = validation_path(options.output);
  report.tokenizer = options.tokenizer_out;
  if (report.tokenizer.empty() && options.train_vocabulary > 0)
    report.tokenizer = fs::path(options.output).replace_extension(".model");
  std::vector<fs::path> outputs = {options.output, report.validation, report.tokenizer};
  std::erase(outputs, fs::path());
  for (const fs::path& path : outputs) expect_writable(path);

  const std::vector<Document> documents = documents_of(options.input, outputs);
  report.documents = documents.size();
  for (const Document& document : documents) report.bytes += document.bytes;
  const auto train_bytes =
      static_cast<std::uint64_t>(static_cast<double>(report.bytes) * (1 - options.val_fraction));

  const std::string model = options.tokenizer.empty() ? trained_model(options, documents, train_bytes)
                                                      : given_model(options.tokenizer);
  const Tokenizer tokenizer(model, options.tokenizer.empty() ? "just trained" : options.tokenizer.string());
  report.vocabulary = tokenizer.vocabulary();

  const data::Hash128 model_hash = data::hash_bytes(model);
  data::TokenFileWriter train(options.output, report.vocabulary, model_hash);
  std::optional<data::TokenFileWriter> validation;
  TextStream stream(documents);
  Progress progress;
  Piece piece;
  std::vector<std::int32_t> tokens;
  while (stream.next(piece)) {
    const bool first_of_validation = options.val_fraction > 0 && !validation && piece.offset >= train_bytes;
    if (first_of_validation) {
      validation.emplace(report.validation, report.vocabulary, model_hash);
      piece.before = Before::document;  // a file of its own begins like a document
    }
    tokenizer.encode(piece, tokens);
    report.unknown += std::count(tokens.begin(), tokens.end(), tokenizer.unknown());
    (validation ? *validation : train).append(tokens);
    progress.show([&] {
      return fmt::format("tokens: {}, {:.2f} M", share(piece.offset, report.bytes),
                         static_cast<double>(train.size()) / 1e6);
    });
  }
  progress.clear();
  report.replaced = stream.replaced();
  if (options.val_fraction > 0 && (!validation || validation->size() <= 1)) {
    throw Error(Exit::usage, "no text is left for validation",
                fmt::format("a fraction of {} of {} bytes", options.val_fraction, report.bytes),
                "Use a larger --val-fraction?");
  }

  if (!report.tokenizer.empty()) files::replace_atomically(report.tokenizer, model, 0644);
  if (validation) {
    report.val_tokens = validation->size();
    report.val_identity = data::hex(validation->finish().content);
  }
  report.tokens = train.size();
  report.identity = data::hex(train.finish().content);  // last: who sees this file sees the others
  return report;
}

}  // namespace holdfast::tool
