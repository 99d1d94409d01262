#include "src/tools/infer/generate.hpp"

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::infer {

namespace {

/// A text that is being written.
struct Running {
  std::size_t number = 0;
  KvCache text;
  std::int32_t newest = 0;
};

class Generation {
 public:
  Generation(Decoder& decoder, int vocabulary, std::span<const std::vector<std::int32_t>> prompts,
             const Settings& settings, const Listener& listener)
      : decoder_(decoder),
        vocabulary_(as_size(vocabulary)),
        prompts_(prompts),
        settings_(settings),
        listener_(listener),
        answers_(prompts.size()),
        logits_(vocabulary_ * as_size(decoder.batch())) {}

  std::vector<Answer> run() {
    while (next_ < prompts_.size() || !running_.empty()) {
      if (stopped()) {
        end_all();
        break;
      }
      if (next_ < prompts_.size() && static_cast<int>(running_.size()) < decoder_.batch())
        begin(next_++);
      else
        step();
    }
    return std::move(answers_);
  }

 private:
  bool stopped() const { return listener_.stopped && listener_.stopped(); }
  std::span<const float> logits(std::size_t row) const {
    return std::span(logits_).subspan(row * vocabulary_, vocabulary_);
  }

  void begin(std::size_t number) {
    Running text{number, decoder_.begin()};
    if (settings_.max_tokens == 0) return end(number, Stop::length);
    if (!decoder_.prefill(text.text, prompts_[number], std::span(logits_).first(vocabulary_),
                          listener_.stopped))
      return end(number, Stop::interrupted);
    if (write(text, logits(0))) running_.push_back(std::move(text));
  }

  void step() {
    std::vector<KvCache*> texts;
    std::vector<std::int32_t> tokens;
    for (Running& text : running_) texts.push_back(&text.text), tokens.push_back(text.newest);
    decoder_.step(texts, tokens,
                  tensor::dense(logits_.data(), static_cast<std::int64_t>(texts.size()),
                                static_cast<std::int64_t>(vocabulary_)));
    std::vector<Running> still;
    for (std::size_t i = 0; i < running_.size(); ++i)
      if (write(running_[i], logits(i))) still.push_back(std::move(running_[i]));
    running_ = std::move(still);
  }

  /// The next token; whether the text goes on behind it.
  bool write(Running& text, std::span<const float> of_next) {
    Answer& answer = answers_[text.number];
    const auto position = prompts_[text.number].size() + answer.tokens.size();
    text.newest = choose(of_next, settings_.sampling, settings_.first_number + text.number, position);
    answer.tokens.push_back(text.newest);
    if (listener_.token) listener_.token(text.number, text.newest);
    if (std::ranges::find(settings_.ends, text.newest) != settings_.ends.end())
      return end(text.number, Stop::end), false;
    if (static_cast<std::int64_t>(answer.tokens.size()) == settings_.max_tokens)
      return end(text.number, Stop::length), false;
    if (static_cast<std::int64_t>(position) + 1 == decoder_.positions())
      return end(text.number, Stop::full), false;
    return true;
  }

  void end(std::size_t number, Stop stop) {
    answers_[number].stop = stop;
    if (listener_.done) listener_.done(number, answers_[number]);
  }

  void end_all() {
    for (const Running& text : running_) end(text.number, Stop::interrupted);
    for (; next_ < prompts_.size(); ++next_) end(next_, Stop::interrupted);
  }

  Decoder& decoder_;
  std::size_t vocabulary_;
  std::span<const std::vector<std::int32_t>> prompts_;
  const Settings& settings_;
  const Listener& listener_;
  std::vector<Answer> answers_;
  std::vector<float> logits_;  ///< batch x V
  std::vector<Running> running_;
  std::size_t next_ = 0;
};

}  // namespace

const char* name_of(Stop stop) {
  switch (stop) {
    case Stop::end:
      return "end";
    case Stop::length:
      return "length";
    case Stop::full:
      return "full";
    case Stop::interrupted:
      return "interrupted";
  }
  return "";
}

std::vector<Answer> generate(Decoder& decoder, int vocabulary,
                             std::span<const std::vector<std::int32_t>> prompts, const Settings& settings,
                             const Listener& listener) {
  for (const auto& prompt : prompts)
    expects(!prompt.empty() && std::ssize(prompt) < decoder.positions(), "an answer has room");
  return Generation(decoder, vocabulary, prompts, settings, listener).run();
}

}  // namespace holdfast::infer
