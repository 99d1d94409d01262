#pragma once
// How help looks: lines end between words at the width of the terminal, and examples stand at the end.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

namespace holdfast::command_line {

/// Columns of the terminal on standard output, at most 120; 80 where there is none.
int help_width();

/// `text` in lines of at most `width` columns; all but the first begin with `indent` spaces. Line ends of the
/// text stay, and so does a line that begins with a space. Columns are counted in bytes.
std::string wrapped(const std::string& text, int width, int indent = 0);

/// The type of an option's value without the limits that the parser appends, but with a list of values.
std::string shown_type(const CLI::Option& option);

/// For the outermost App, before its verbs are added: these inherit it.
std::shared_ptr<CLI::FormatterBase> help_formatter(int width);

/// Puts command lines behind the help of a verb, below what its footer says.
void add_examples(CLI::App& verb, const std::vector<std::string>& examples);

/// What an error of the parser says, to stand behind "holdfast: ".
std::string parse_error(const CLI::ParseError& error);

}  // namespace holdfast::command_line
