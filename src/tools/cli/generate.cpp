#include "src/tools/cli/generate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ostream>

#include "src/base/error.hpp"
#include "src/base/printable.hpp"
#include "src/base/strict_json.hpp"
#include "src/base/utf8.hpp"
#include "src/tools/cli/interrupt.hpp"
#include "src/tools/cli/writer.hpp"
#include "src/tools/infer/text_stream.hpp"

namespace holdfast::tool {

namespace {

using Json = nlohmann::ordered_json;

std::vector<Prompt> prompts_of(const GenerateOrder& order) {
  std::vector<Prompt> prompts;
  for (const std::string& text : order.prompts)
    prompts.push_back(prompt_of(text, order.chat, order.system, "the prompt"));
  if (order.file.empty()) return prompts;
  for (Prompt& prompt : read_prompts(order.file, order.chat, order.system))
    prompts.push_back(std::move(prompt));
  return prompts;
}

/// On one line, not too long.
std::string title_of(const Prompt& prompt) {
  std::string text = prompt.text;
  if (prompt.is_conversation()) {
    const Json content = prompt.messages.back().value("content", Json());
    text = content.is_string() ? content.get<std::string>() : content.dump();
  }
  constexpr std::size_t most = 72;
  std::string out = printable_line(text);
  if (out.size() <= most) return out;
  std::size_t cut = most;
  while (utf8::continues(out[cut])) --cut;
  return out.substr(0, cut) + "...";
}

/// Prints answers in the order of the prompts, whichever is ready first.
class Printer {
 public:
  Printer(const Writer& writer, const GenerateOrder& order, const std::vector<Prompt>& prompts,
          const std::vector<std::vector<text::Token>>& tokens, std::ostream& out)
      : writer_(writer), order_(order), prompts_(prompts), tokens_(tokens), out_(out) {}

  void add(std::size_t number, const infer::Answer& answer) {
    ready_[number] = order_.json ? json_of(number, answer) : text_of(number, answer);
    for (auto first = ready_.begin(); first != ready_.end() && first->first == next_;
         first = ready_.begin()) {
      out_ << first->second << std::flush;
      ready_.erase(first);
      ++next_;
    }
  }

 private:
  std::string answer_text(std::size_t number, const infer::Answer& answer) const {
    return infer::text_of(writer_.tokenizer(), answer.tokens, tokens_[number].back());
  }
  std::string text_of(std::size_t number, const infer::Answer& answer) const {
    const std::string title =
        prompts_.size() > 1 ? fmt::format("[{}] {}\n", number + 1, title_of(prompts_[number])) : "";
    return title + answer_text(number, answer) + (prompts_.size() > 1 ? "\n\n" : "\n");
  }
  std::string json_of(std::size_t number, const infer::Answer& answer) const {
    const Prompt& prompt = prompts_[number];
    Json line = {{"schema_version", 1}};
    if (prompt.is_conversation())
      line["messages"] = prompt.messages;
    else
      line["prompt"] = prompt.text;
    line["text"] = answer_text(number, answer);
    line["stop"] = infer::name_of(answer.stop);
    line["prompt_tokens"] = tokens_[number];
    line["tokens"] = answer.tokens;
    return json_text(line) + "\n";
  }

  const Writer& writer_;
  const GenerateOrder& order_;
  const std::vector<Prompt>& prompts_;
  const std::vector<std::vector<text::Token>>& tokens_;
  std::ostream& out_;
  std::map<std::size_t, std::string> ready_;
  std::size_t next_ = 0;
};

/// One answer, as it is written.
void stream(Writer& writer, std::span<const std::vector<text::Token>> prompt, infer::Listener listener,
            std::ostream& out) {
  infer::TextStream text(writer.tokenizer(), prompt[0].back());
  listener.token = [&](std::size_t, text::Token token) { out << text.add(token) << std::flush; };
  writer.answer(prompt, 0, listener);
  out << text.finish() << '\n' << std::flush;
}

}  // namespace

int generate(const GenerateOrder& order, std::istream& in, std::ostream& out) {
  infer::check(order.sampling);
  const std::vector<Prompt> prompts = prompts_of(order);
  Writer writer(order);
  if (prompts.empty()) {
    if (order.json)
      throw Error(Exit::usage, "there is no prompt", "--json is for prompts that are given",
                  "Name them with --prompt or --file?");
    writer.load(writer.max_sequence());
    return converse(writer, order, in, out);
  }
  std::vector<std::vector<text::Token>> tokens;
  std::size_t longest = 0;
  for (const Prompt& prompt : prompts) {
    tokens.push_back(writer.tokens_of(prompt));
    longest = std::max(longest, tokens.back().size());
  }
  note_interrupts();
  writer.load(static_cast<std::int64_t>(longest) + order.max_tokens);
  stop_if_interrupted();
  infer::Listener listener;
  listener.stopped = [] { return interrupted() != 0; };
  if (prompts.size() == 1 && !order.json) {
    stream(writer, tokens, listener, out);
  } else {
    Printer printer(writer, order, prompts, tokens, out);
    listener.done = [&](std::size_t number, const infer::Answer& answer) { printer.add(number, answer); };
    writer.answer(tokens, 0, listener);
  }
  writer.say_speed();
  stop_if_interrupted();
  return static_cast<int>(Exit::done);
}

}  // namespace holdfast::tool
