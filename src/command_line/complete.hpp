#pragma once
// Which words may stand next on a command line, from the verbs and options of a CLI::App. The shells'
// functions (completion_script) ask for them each time that the user presses the tabulator key.
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "src/base/error.hpp"

namespace holdfast::command_line {

struct Candidate {
  std::string word, meaning;
  bool operator==(const Candidate&) const = default;
};

/// What the shell adds by itself.
enum class Paths { none, files, folders };

struct Candidates {
  std::vector<Candidate> words;
  Paths paths = Paths::none;
};

/// Values of an option or argument, by the name of its type, such as "KEY=VALUE".
using ValuesOf = std::function<Candidates(const std::string& type)>;

/// `words` stand behind the program's name; the last one is not complete, and may be empty.
Candidates complete(const CLI::App& app, const std::vector<std::string>& words, const ValuesOf& values);

/// Throws Error (usage) that names the nearest verb, when a word stands where a verb must stand and is none.
void refuse_unknown_verb(const CLI::App& app, const std::vector<std::string>& words);

/// What to say of words that the parser refuses: Error (usage), with the option that may be meant, or where
/// to read more.
Error usage_error(const CLI::App& app, const std::vector<std::string>& words, const CLI::ParseError& error);

/// What the shells' functions read: a line for each candidate, "word<tab>meaning", and ":files" or
/// ":folders".
std::string lines_of(const Candidates& candidates);

/// The function for "bash", "zsh" or "fish", to be evaluated there; empty: another shell.
std::string completion_script(const std::string& shell);

}  // namespace holdfast::command_line
