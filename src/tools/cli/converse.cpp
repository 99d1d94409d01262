// generate without prompts: a line is asked, its answer is written as it comes.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <istream>
#include <ostream>

#include "src/base/error.hpp"
#include "src/tools/cli/interrupt.hpp"
#include "src/tools/cli/writer.hpp"
#include "src/tools/infer/text_stream.hpp"

namespace holdfast::tool {

namespace {

using Json = nlohmann::ordered_json;

class Conversation {
 public:
  Conversation(Writer& writer, const GenerateOrder& order, std::ostream& out)
      : writer_(writer), order_(order), out_(out) {}

  void ask(const std::string& line) {
    Prompt prompt = prompt_of(line, order_.chat, order_.system, "the line");
    if (order_.chat && !history_.empty()) {
      Json all = history_;
      all.push_back(prompt.messages.back());
      prompt.messages = std::move(all);
    }
    const std::vector<std::vector<text::Token>> tokens = {writer_.tokens_of(prompt)};
    infer::TextStream stream(writer_.tokenizer(), tokens[0].back());
    std::string said;
    const auto say = [&](const std::string& text) {
      said += text;
      out_ << text << std::flush;
    };
    infer::Listener listener;
    listener.token = [&](std::size_t, text::Token token) { say(stream.add(token)); };
    listener.stopped = [] { return interrupted() != 0; };
    note_interrupts();
    writer_.answer(tokens, asked_++, listener);
    say(stream.finish());
    out_ << '\n' << std::flush;
    const int signal = interrupted();
    if (signal != 0 && signal != SIGINT) stop_if_interrupted();
    forget_interrupts();
    if (!order_.chat) return;
    prompt.messages.push_back(Json{{"role", "assistant"}, {"content", said}});
    history_ = std::move(prompt.messages);
  }

 private:
  Writer& writer_;
  const GenerateOrder& order_;
  std::ostream& out_;
  Json history_ = Json::array();
  std::uint64_t asked_ = 0;
};

}  // namespace

int converse(Writer& writer, const GenerateOrder& order, std::istream& in, std::ostream& out) {
  const bool terminal = ::isatty(0) == 1 && ::isatty(2) == 1;
  if (terminal) std::cerr << "Ctrl-C ends an answer, Ctrl-D all of it.\n";
  Conversation conversation(writer, order, out);
  for (std::string line;;) {
    if (terminal) std::cerr << "> ";
    if (!std::getline(in, line)) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      conversation.ask(line);
    } catch (const Error& error) {
      // At a terminal one line may be wrong and the next one right.
      if (!terminal || error.exit() != Exit::usage) throw;
      std::cerr << fmt::format("holdfast: {}\n", error.what());
    }
  }
  if (terminal) std::cerr << "\n";
  writer.say_speed();
  return static_cast<int>(Exit::done);
}

}  // namespace holdfast::tool
