#pragma once
// What `data prepare` is asked for.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::corpus {

enum class Format {
  automatic,  ///< by the file's name: .jsonl, .json and .ndjson are JSON Lines, all else is text
  text,       ///< a file is a document
  jsonl,      ///< a line, or an element of one array, is a document, under Settings::text_key
  chat,       ///< a line of JSON, or an element of one array, is a conversation
  u16,
  u32,       ///< tokens, little endian, without a header
  megatron,  ///< tokens: pairs of .bin and .idx
};
enum class Dedupe { none, exact, near };
enum class Split {
  automatic,  ///< by documents for lines, by the tail for all else
  documents,  ///< by the hash of a document's text: the same ones whatever their order
  tail,       ///< the last part of the input's bytes
};

enum class Long {
  automatic,  ///< conversations are dropped, texts and tokens cut
  drop,
  truncate,  ///< its begin is kept
  cut,       ///< at each end of a row
};

struct Settings {
  std::vector<std::filesystem::path> input;  ///< files and folders
  std::filesystem::path output;              ///< token file
  Format format = Format::automatic;
  std::string text_key = "text";
  std::filesystem::path chat;  ///< folder of a model with a chat template; empty: the tokenizer's

  std::filesystem::path tokenizer;      ///< see text::open_tokenizer; empty: train one, or none (own tokens)
  int train_vocabulary = 0;             ///< pieces of the SentencePiece model to train; 0: none
  std::filesystem::path tokenizer_out;  ///< where to keep the model; empty: beside the output (a trained one)
  std::int64_t vocabulary = 0;          ///< own tokens without a tokenizer: all are below
  std::optional<std::int32_t> document_start;  ///< u16, u32: the token that begins a document
  bool document_end = true;                    ///< text: put the tokenizer's token behind each document

  Dedupe dedupe = Dedupe::none;
  double similarity = 0.8;  ///< Dedupe::near: documents above are mostly found, those below mostly not
  double val_fraction = 0;  ///< in [0, 1): kept apart in OUTPUT.val.EXT
  Split split = Split::automatic;
  std::int64_t pack = 0;          ///< tokens of a row; 0: documents follow each other
  Long longer = Long::automatic;  ///< what becomes of documents that are longer than a row
  bool strict = false;            ///< the first broken line is an error
  bool skip_bad_files = false;    ///< a file that gives no document, or is no text, is left out, and no error

  int workers = 0;          ///< threads; 0: one per core that this process may use
  bool keep_work = false;   ///< leave OUTPUT.work behind
  bool check_space = true;  ///< refuse what does not fit on the disk
};

/// "u16" etc.
const char* name_of(Format format);
const char* name_of(Dedupe dedupe);
const char* name_of(Split split);
const char* name_of(Long longer);

inline bool is_lines(Format format) { return format == Format::jsonl || format == Format::chat; }
inline bool is_tokens(Format format) {
  return format == Format::u16 || format == Format::u32 || format == Format::megatron;
}

/// Throws Error (usage) for settings that contradict each other.
void check(const Settings& settings);

/// The files beside the output: "tokens.bin" -> "tokens.val.bin", "tokens.bin.card.json", "tokens.bin.work".
std::filesystem::path validation_path(const std::filesystem::path& output);
std::filesystem::path card_path(const std::filesystem::path& output);
std::filesystem::path work_path(const std::filesystem::path& output);
/// Where the tokenizer's model is written; empty: nowhere.
std::filesystem::path model_path(const Settings& settings);
/// All files that are written besides the work folder, the output last.
std::vector<std::filesystem::path> outputs_of(const Settings& settings);

}  // namespace holdfast::corpus
