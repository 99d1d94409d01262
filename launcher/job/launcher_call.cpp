#include "launcher/job/launcher_call.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

namespace holdfast::launcher::others {
namespace {

/// Do `words` from `at` on spell `wanted`? Returns how many words that takes; 0: they do not.
std::size_t spells(const Words& words, std::size_t at, string_view wanted) {
  std::size_t taken = 0;
  while (!wanted.empty()) {
    const auto end = std::min(wanted.find(' '), wanted.size());
    const string_view word = wanted.substr(0, end);
    wanted.remove_prefix(std::min(end + 1, wanted.size()));
    if (at + taken >= words.size()) return 0;
    const std::string here = taken == 0 ? base(words[at + taken]) : words[at + taken];
    const bool begins = word.ends_with('*') && here.starts_with(word.substr(0, word.size() - 1));
    if (here != word && !begins) return 0;
    ++taken;
  }
  return taken;
}

/// The launcher that the words from `at` on call at once.
Found called_at(const Words& words, std::size_t at) {
  for (const auto& program : refused_programs())
    if (const auto taken = spells(words, at, program.words)) {
      const std::string all = fmt::format("{}", fmt::join(words, " "));
      if (program.unless.empty() || all.find(program.unless) == std::string::npos)
        return {nullptr, &program, at, at + taken,
                fmt::format("{}", fmt::join(words.begin() + static_cast<std::ptrdiff_t>(at),
                                            words.begin() + static_cast<std::ptrdiff_t>(at + taken), " "))};
    }
  std::size_t module = at;
  if (at < words.size() && is_python(words[at])) {
    // Options of the interpreter come before -m; -X and -W have a value.
    for (++module; module < words.size() && words[module].starts_with('-') && words[module] != "-m"; ++module)
      if (words[module] == "-X" || words[module] == "-W") ++module;
  }
  for (const auto& spelling : spellings()) {
    const bool behind_python = spelling.words.starts_with("-m");
    if (behind_python && module == at) continue;
    const std::size_t from = behind_python ? module : at;
    if (const auto taken = spells(words, from, spelling.words))
      return {&launcher_of(spelling.kind), nullptr, at, from + taken, launcher_of(spelling.kind).name};
  }
  return {};
}

/// Commands of a shell's text, roughly: what stands between its operators, without quotes.
std::vector<Words> commands_in(const std::string& text) {
  std::vector<Words> out(1);
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) out.back().push_back(std::exchange(word, ""));
  };
  bool comment = false;
  for (const char c : text) {
    if (c == '\n') comment = false;
    if (comment) continue;
    if (c == '#' && word.empty()) {
      comment = true;
    } else if (string_view(";&|()\n`{}").find(c) != string_view::npos) {
      end_word();
      out.emplace_back();
    } else if (c == ' ' || c == '\t' || c == '\r') {
      end_word();
    } else if (c != '"' && c != '\'') {
      word += c;
    }
  }
  end_word();
  return out;
}

}  // namespace

std::string base(const std::string& word) { return std::filesystem::path(word).filename().string(); }
bool is_python(const std::string& word) {
  const std::string name = base(word);
  return name.starts_with("python") &&
         std::ranges::all_of(name.substr(6), [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}
bool is_assignment(const std::string& word) {
  const auto equals = word.find('=');
  return equals != std::string::npos && equals > 0 && !word.starts_with('-') &&
         word.find_first_of("/.") > equals;
}

Found called_by(const Words& words) {
  std::size_t at = 0;
  while (at < words.size() && is_assignment(words[at])) ++at;
  if (at == words.size()) return {};
  if (const Found found = called_at(words, at)) return found;
  if (!is_wrapper(base(words[at]))) return {};
  for (std::size_t i = at + 1; i < words.size(); ++i) {
    if (takes_name(words[i])) {
      ++i;
      continue;
    }
    if (const Found found = called_at(words, i)) return found;
    if (is_python(words[i]) || is_shell(base(words[i]))) return {};  // that is what it runs
  }
  return {};
}

Found called_in_text(const std::string& text, Words& where) {
  static constexpr std::array<string_view, 6> leads = {"then", "do", "else", "if", "while", "!"};
  std::string joined = text;  // lines that go on
  for (std::size_t at = 0; (at = joined.find("\\\n", at)) != std::string::npos;) joined.replace(at, 2, " ");
  for (Words words : commands_in(joined)) {
    while (!words.empty() && std::ranges::find(leads, words.front()) != leads.end())
      words.erase(words.begin());
    if (const Found found = called_by(words)) {
      where = words;
      return found;
    }
  }
  return {};
}

const std::string* shell_text(const Words& words) {
  if (words.size() < 3 || !is_shell(base(words.front()))) return nullptr;
  for (std::size_t i = 1; i + 1 < words.size() && words[i].starts_with('-'); ++i)
    if (!words[i].starts_with("--") && words[i].ends_with('c')) return &words[i + 1];
  return nullptr;
}

std::string script_in(const Words& words) {
  if (!is_shell(base(words.front()))) return words.front();
  const auto first = std::find_if(words.begin() + 1, words.end(),
                                  [](const std::string& word) { return !word.starts_with('-'); });
  return first == words.end() ? "" : *first;
}

}  // namespace holdfast::launcher::others
