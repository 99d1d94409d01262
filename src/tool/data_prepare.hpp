#pragma once
// `data prepare`: plain text to token files. The same input and settings give the same bytes, whatever the
// run.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace holdfast::tool {

struct PrepareOptions {
  std::vector<std::filesystem::path> input;  ///< files and folders; a file is a document
  std::filesystem::path output;              ///< token file
  std::filesystem::path tokenizer;           ///< a SentencePiece model; empty: train one
  int train_vocabulary = 0;                  ///< pieces of the model to train; 0: use `tokenizer`
  std::filesystem::path
      tokenizer_out;        ///< where to keep the model; empty: beside the output (only a trained one)
  double val_fraction = 0;  ///< in [0, 1): the last part of the text (by bytes) becomes OUTPUT.val.EXT; a
                            ///< trained model never sees it
};

/// What was written.
struct PrepareReport {
  std::uint64_t documents = 0, bytes = 0;
  std::int64_t vocabulary = 0, tokens = 0, val_tokens = 0;
  std::uint64_t replaced = 0;  ///< malformed UTF-8 sequences that became U+FFFD
  std::int64_t unknown = 0;    ///< <unk> tokens: text that this tokenizer cannot spell
  std::string identity, val_identity;
  std::filesystem::path validation, tokenizer;  ///< empty: not written
};

/// "tokens.bin" -> "tokens.val.bin"
std::filesystem::path validation_path(const std::filesystem::path& output);

/// Error (usage) for missing or empty input, an output that cannot be written, a vocabulary that does not
/// suit the text, settings that contradict each other. Nothing is written then, except perhaps the tokenizer.
PrepareReport prepare(const PrepareOptions& options);

}  // namespace holdfast::tool
