#include "src/command_line/help.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <regex>
#include <sstream>

namespace holdfast::command_line {
namespace {

constexpr int usual_width = 80, widest = 120, narrowest = 40;
constexpr std::size_t names_width = 30;  // of the column of options and verbs

void wrap_line(const std::string& line, std::size_t width, const std::string& indent, std::string& out) {
  if (line.starts_with(' ')) {
    out += line;
    return;
  }
  std::istringstream words(line);
  std::string word;
  std::size_t column = 0;
  while (words >> word) {
    if (column > 0 && indent.size() + column + 1 + word.size() > width) {
      out += "\n" + indent;
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
}

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(int width) : width_(width) {
    column_width(names_width);
    label("SUBCOMMAND", "VERB");
    label("Subcommands", "Verbs");
    label("Positionals", "Arguments");
  }

  std::string make_option(const CLI::Option* option, bool positional) const override {
    return row(make_option_name(option, positional) + make_option_opts(option), option->get_description());
  }
  std::string make_subcommand(const CLI::App* verb) const override {
    return row(verb->get_name(), verb->get_description());
  }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    if (positional && !option->get_type_name().empty() && option->get_type_name() != "TEXT")
      return option->get_type_name();
    return Formatter::make_option_name(option, positional);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional()) return "";
    std::string out;
    if (option->get_type_size() != 0 && !option->get_type_name().empty()) out += " " + shown_type(*option);
    if (!option->get_default_str().empty()) out += " (" + option->get_default_str() + ")";
    if (option->get_required()) out += ", required";
    return out;
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), width_) + "\n";
  }
  std::string make_footer(const CLI::App* app) const override {
    const std::string text = app->get_footer();
    return text.empty() ? "" : wrapped(text, width_) + "\n";
  }

 private:
  std::string row(const std::string& name, const std::string& text) const {
    const std::string left = "  " + name;
    const std::size_t column = get_column_width();
    const std::string gap =
        left.size() < column ? std::string(column - left.size(), ' ') : "\n" + std::string(column, ' ');
    return left + (text.empty() ? "" : gap + wrapped(text, width_, static_cast<int>(column))) + "\n";
  }

  int width_;
};

/// Limits as the parser prints them; without an upper one it is the largest number that there is.
std::string out_of_range(const std::smatch& parts) {
  const std::string option = parts.str(1), value = parts.str(2);
  const double given = std::strtod(value.c_str(), nullptr),
               least = std::strtod(parts.str(3).c_str(), nullptr),
               most = std::strtod(parts.str(4).c_str(), nullptr);
  constexpr double no_limit = 1e18;
  const std::string wanted = most > no_limit && least == 0 && given < 0 ? "must not be negative"
                             : most > no_limit && least == 0            ? "must be above 0"
                             : most > no_limit
                                 ? fmt::format("must be at least {:.0f}", least)
                                 : fmt::format("must be between {:.0f} and {:.0f}", least, most);
  return fmt::format("{} {} (it is {})", option, wanted, value);
}

}  // namespace

int help_width() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return usual_width;
  return std::clamp<int>(size.ws_col, narrowest, widest);
}

std::string shown_type(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const auto limits = type.find(':');
  return limits == std::string::npos || type.compare(limits, 2, ":{") == 0 ? type : type.substr(0, limits);
}

std::string wrapped(const std::string& text, int width, int indent) {
  const std::string spaces(static_cast<unsigned>(indent), ' ');
  std::string out, line;
  std::istringstream lines(text);
  for (bool first = true; std::getline(lines, line); first = false) {
    if (!first) out += line.empty() ? "\n" : "\n" + spaces;
    wrap_line(line, static_cast<unsigned>(width), spaces, out);
  }
  return out;
}

std::shared_ptr<CLI::FormatterBase> help_formatter(int width) {
  return std::make_shared<HelpFormatter>(width);
}

void add_examples(CLI::App& verb, const std::vector<std::string>& examples) {
  if (examples.empty()) return;
  std::string text = verb.get_footer();
  if (!text.empty()) text += "\n\n";
  text += examples.size() == 1 ? "Example:" : "Examples:";
  for (const auto& example : examples) text += "\n  " + example;
  verb.footer(text);
}

std::string parse_error(const CLI::ParseError& error) {
  std::string what = error.what();  // it is a sentence, or begins with the name of an argument
  static const std::regex missing("(.+): 1 required (\\S+) missing"),
      range("(.+): Value (\\S+) not in range (\\S+) to (\\S+)"),
      choice("(.+): (?:Check )?(\\S+) (?:value in .* OR|not in) \\{(.*)\\}(?: FAILED)?");
  std::smatch parts;
  if (std::regex_match(what, parts, missing))
    return fmt::format("{} needs a value, {}", parts.str(1), parts.str(2));
  if (std::regex_match(what, parts, range)) return out_of_range(parts);
  if (std::regex_match(what, parts, choice))
    return fmt::format("{} must be one of {} (it is {})", parts.str(1), parts.str(3), parts.str(2));
  const auto is = [&](std::size_t at, int (*kind)(int)) {
    return at < what.size() && kind(static_cast<unsigned char>(what[at])) != 0;
  };
  if (is(0, std::isupper) && is(1, std::islower))
    what.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(what.front())));
  return what;
}

}  // namespace holdfast::command_line
