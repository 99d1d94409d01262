#include "src/command_line/help.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/command_line/program.hpp"

namespace holdfast::command_line {
namespace {

TEST(Help, WrapsBetweenWords) {
  EXPECT_EQ(wrapped("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrapped("one two three", 9, 2), "one two\n  three");
  EXPECT_EQ(wrapped("unbreakable word", 4), "unbreakable\nword");
  EXPECT_EQ(wrapped("one\n\n  a  b  c  d", 8), "one\n\n  a  b  c  d") << "an example stays as it is";
  EXPECT_EQ(wrapped("", 10), "");
}

TEST(Help, NoLineIsWiderThanTheTerminal) {
  test::Program program;
  auto* verb =
      program.app.add_subcommand("long", std::string(20, 'x') + " word word word word word word word word");
  std::string value;
  verb->add_option("--option", value,
                   "A description of some length that needs more than one line of a terminal");
  for (const int width : {60, 80, 120}) {
    program.app.formatter(help_formatter(width));
    verb->formatter(help_formatter(width));
    std::istringstream lines(program.app.help() + verb->help());
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(line.size(), static_cast<unsigned>(width)) << line;
  }
}

TEST(Help, NamesArgumentsByTheirTypes) {
  test::Program program;
  auto* submit = program.app.get_subcommand("submit");
  submit->formatter(help_formatter(80));
  add_examples(*submit, {"holdfast submit a.toml", "holdfast submit b.toml"});
  const std::string help = submit->help("holdfast");
  EXPECT_NE(help.find("Usage: holdfast submit [OPTIONS] JOB.toml\n"), std::string::npos) << help;
  EXPECT_NE(help.find("  --set KEY=VALUE"), std::string::npos) << help;
  EXPECT_NE(help.find("Examples:\n  holdfast submit a.toml\n  holdfast submit b.toml\n"), std::string::npos)
      << help;
}

TEST(Help, ErrorsOfTheParserKeepTheNamesOfArguments) {
  const auto said = [](const std::vector<std::string>& words) {
    test::Program program;
    try {
      program.app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    } catch (const CLI::ParseError& error) {
      return std::string(usage_error(program.app, words, error).what());
    }
    return std::string();
  };
  EXPECT_EQ(said({"ctl"}), "RUN is required. 'holdfast ctl --help' says more");
  EXPECT_EQ(said({"submit", "a", "--other"}),
            "'holdfast submit' has no option --other. 'holdfast submit --help' says more");
  EXPECT_EQ(said({"submit", "a", "--sett", "b"}),
            "'holdfast submit' has no option --sett. Did you mean --set?");
  EXPECT_EQ(said({"submit", "a", "--set"}),
            "--set needs a value, KEY=VALUE. 'holdfast submit --help' says more");
}

}  // namespace
}  // namespace holdfast::command_line
