#include "src/tool/tokenizer.hpp"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <exception>
#include <limits>

#include "src/base/error.hpp"

namespace holdfast::tool {
namespace {

constexpr std::uint64_t most_training_bytes = 64 << 20;  // SentencePiece holds its training text in memory
constexpr int special_pieces = 3 + 256;

/// Gives SentencePiece every stride-th piece. It asks through an interface without exceptions, so an Error
/// waits here.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  Lines(const std::function<bool(Piece&)>& text, std::uint64_t stride) : text_(text), stride_(stride) {
    Next();
  }
  bool done() const override { return done_; }
  void Next() override {
    try {
      do done_ = !text_(piece_);
      while (!done_ && count_++ % stride_ != 0);
    } catch (...) {
      failure_ = std::current_exception();
      done_ = true;
    }
  }
  const std::string& value() const override { return piece_.text; }
  sentencepiece::util::Status status() const override { return {}; }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  const std::function<bool(Piece&)>& text_;
  std::uint64_t stride_ = 1, count_ = 0;
  Piece piece_;
  bool done_ = false;
  std::exception_ptr failure_;
};

/// The number behind `words` in SentencePiece's own message, or "".
std::string number_after(const std::string& message, const std::string& words) {
  const std::size_t at = message.find(words);
  if (at == std::string::npos) return {};
  const std::size_t first = at + words.size();
  return message.substr(first, message.find_first_not_of("0123456789", first) - first);
}

Error refusal(int vocabulary, const std::string& message) {
  const std::string asked = "a vocabulary of " + std::to_string(vocabulary);
  if (const std::string most = number_after(message, "to a value <= "); !most.empty()) {
    return {Exit::usage, asked + " is too large for this text", "the text yields only " + most + " pieces",
            "Use --train-vocabulary " + most + " or less, or more text?"};
  }
  if (const std::string least = number_after(message, std::to_string(vocabulary) + " vs "); !least.empty()) {
    return {Exit::usage, asked + " is too small for this text",
            "its characters and the 256 bytes need " + least,
            "Use --train-vocabulary " + least + " or more?"};
  }
  return {Exit::usage, "cannot train a tokenizer on this text", message};
}

}  // namespace

std::string train_tokenizer(int vocabulary, std::uint64_t text_bytes,
                            const std::function<bool(Piece&)>& text) {
  if (vocabulary <= special_pieces) {
    throw Error(Exit::usage, "a vocabulary of " + std::to_string(vocabulary) + " is too small",
                "3 control pieces and 256 bytes come first", "Use --train-vocabulary 512 or more?");
  }
  Lines lines(text, text_bytes / most_training_bytes + 1);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      {{"model_type", "bpe"},
       {"vocab_size", std::to_string(vocabulary)},
       {"character_coverage", "0.9995"},  // rarer characters are spelled in bytes: nothing is lost
       {"byte_fallback", "true"},
       {"normalization_rule_name", "identity"},
       {"remove_extra_whitespaces", "false"},
       {"allow_whitespace_only_pieces", "true"},
       {"add_dummy_prefix", "false"},
       {"split_digits", "true"},
       {"max_sentence_length", std::to_string(4 * TextStream::most_bytes)},  // U+FFFD may lengthen a piece
       {"shuffle_input_sentence", "false"},
       {"num_threads", "1"},
       {"minloglevel", "2"}},
      &lines, &model);
  lines.rethrow();
  if (!status.ok()) throw refusal(vocabulary, status.ToString());
  return model;
}

Tokenizer::Tokenizer(std::string_view model, const std::string& name)
    : model_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const auto status = model_->LoadFromSerializedProto(model);
  if (model.empty() || !status.ok()) {
    throw Error(Exit::usage, "cannot use tokenizer " + name, "it is not a SentencePiece model",
                "Give a .model file, or train one with --train-vocabulary?");
  }
  document_start_ = model_->bos_id() >= 0 ? model_->bos_id() : model_->eos_id();
  newline_ = model_->EncodeAsIds("\n");
  dummy_ = newline_.size() > 1 && model_->IdToPiece(newline_.front()) == "\xE2\x96\x81" ? 1 : 0;
}

Tokenizer::~Tokenizer() = default;

int Tokenizer::vocabulary() const { return model_->GetPieceSize(); }
int Tokenizer::unknown() const { return model_->unk_id(); }

void Tokenizer::encode(const Piece& piece, std::vector<std::int32_t>& tokens) const {
  tokens.clear();
  if (piece.before == Before::document) {
    if (document_start_ >= 0) tokens.push_back(document_start_);
    const std::vector<int> ids = model_->EncodeAsIds(piece.text);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    return;
  }
  // Inside a document a model's dummy space would be wrong. It stands before the line feed, where it can be
  // dropped; and with the line feed itself where the text goes on in the same line.
  const std::vector<int> ids = model_->EncodeAsIds("\n" + piece.text);
  const std::size_t drop = piece.before == Before::newline ? dummy_ : newline_.size();
  if (std::equal(newline_.begin(), newline_.begin() + static_cast<std::ptrdiff_t>(drop), ids.begin(),
                 ids.begin() + static_cast<std::ptrdiff_t>(std::min(drop, ids.size())))) {
    tokens.assign(ids.begin() + static_cast<std::ptrdiff_t>(drop), ids.end());
  } else {
    tokens.assign(ids.begin(), ids.end());
  }
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  return model_->DecodeIds(std::vector<int>(tokens.begin(), tokens.end()));
}

}  // namespace holdfast::tool
