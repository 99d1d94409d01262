#pragma once
// A model with its tokenizer, ready to answer.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/kernels/kernels.hpp"
#include "src/tools/chat/template.hpp"
#include "src/tools/cli/generate.hpp"
#include "src/tools/cli/prompts.hpp"
#include "src/tools/infer/generate.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace holdfast::tool {

class Writer {
 public:
  /// Opens everything, and reads no weights yet. Throws Error (usage): no tokenizer, one of another model, no
  /// chat template. Warns on stderr where the model's files and the tokenizer name different tokens.
  explicit Writer(const GenerateOrder& order);

  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  std::int64_t max_sequence() const { return files_.shape().max_sequence; }
  /// Throws Error (usage) where the prompt is empty, or leaves no room for an answer.
  std::vector<text::Token> tokens_of(const Prompt& prompt) const;
  /// Reads the weights. Texts of at most `positions` tokens will be written.
  void load(std::int64_t positions);

  /// Throws Error (runtime).
  std::vector<infer::Answer> answer(std::span<const std::vector<text::Token>> prompts,
                                    std::uint64_t first_number, const infer::Listener& listener);
  /// How fast the answers so far came, on stderr.
  void say_speed() const;

 private:
  void open_tokenizer(const GenerateOrder& order);

  const GenerateOrder& order_;
  weights::MergedFiles files_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<chat::Template> template_;
  std::vector<text::Token> ends_;
  std::unique_ptr<kernels::Kernels> kernels_;
  std::optional<infer::Parameters> parameters_;
  std::optional<infer::Decoder> decoder_;
  std::int64_t texts_ = 0, read_ = 0, written_ = 0;  ///< prompts, their tokens, tokens of answers
  double seconds_ = 0;
};

/// Answers line after line of `in`, as they are written; with order.chat a conversation. Ctrl-C ends an
/// answer, and at the beginning of a line the program.
int converse(Writer& writer, const GenerateOrder& order, std::istream& in, std::ostream& out);

}  // namespace holdfast::tool
