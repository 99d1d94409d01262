#include "src/tools/text/train_sentencepiece.hpp"

#include <sentencepiece_trainer.h>

#include <exception>
#include <utility>

#include "src/base/error.hpp"

namespace holdfast::text {
namespace {

constexpr std::uint64_t max_training_bytes = 64 << 20;  // SentencePiece holds its training text in memory
constexpr int special_pieces = 3 + 256;
constexpr int longest_line = 256 << 10;  // bytes

/// Gives SentencePiece every stride-th line. It asks through an interface without exceptions, so an Error
/// waits here.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  Lines(const std::function<bool(std::string&)>& text, std::uint64_t stride) : text_(text), stride_(stride) {
    Next();
  }
  bool done() const override { return done_; }
  void Next() override {
    try {
      do done_ = !text_(line_);
      while (!done_ && count_++ % stride_ != 0);
    } catch (...) {
      failure_ = std::current_exception();
      done_ = true;
    }
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  const std::function<bool(std::string&)>& text_;
  std::uint64_t stride_ = 1, count_ = 0;
  std::string line_;
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

std::string train_sentencepiece(int vocabulary, std::uint64_t text_bytes,
                                const std::function<bool(std::string&)>& next) {
  if (vocabulary <= special_pieces) {
    throw Error(Exit::usage, "a vocabulary of " + std::to_string(vocabulary) + " is too small",
                "3 control pieces and 256 bytes come first", "Use --train-vocabulary 512 or more?");
  }
  Lines lines(next, text_bytes / max_training_bytes + 1);
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
       {"max_sentence_length", std::to_string(longest_line)},
       {"shuffle_input_sentence", "false"},
       {"num_threads", "1"},
       {"minloglevel", "2"}},
      &lines, &model);
  lines.rethrow();
  if (!status.ok()) throw refusal(vocabulary, status.ToString());
  return model;
}

}  // namespace holdfast::text
