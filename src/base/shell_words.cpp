#include "src/base/shell_words.hpp"

#include "src/base/error.hpp"

namespace holdfast {
namespace {

constexpr std::string_view blanks = " \t\n", for_a_shell = ";&|<>()`$";

[[noreturn]] void refuse(std::string_view text, const std::string& why, const std::string& advice) {
  throw Error(Exit::usage, "cannot read the command " + std::string(text), why, advice);
}

}  // namespace

std::vector<std::string> shell_words(std::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = '\0';  // that is open
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool escapes =
        c == '\\' && quote != '\'' && i + 1 < text.size() &&
        (quote == '\0' || std::string_view("\"\\$`").find(text[i + 1]) != std::string_view::npos);
    if (quote == '\0' && blanks.find(c) != std::string_view::npos) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (escapes)
      words.back() += text[++i];
    else if (c == quote)
      quote = '\0';
    else if (quote == '\0' && (c == '\'' || c == '"'))
      quote = c;
    else if (quote != '\'' &&
             (c == '$' || c == '`' || (quote == '\0' && for_a_shell.find(c) != for_a_shell.npos)))
      refuse(text, std::string("no shell reads it, and '") + c + "' needs one",
             "Quote it, or start a shell: bash -c '...'?");
    else
      words.back() += c;
  }
  if (quote != '\0') refuse(text, std::string("a ") + quote + " is not closed", "");
  return words;
}

}  // namespace holdfast
