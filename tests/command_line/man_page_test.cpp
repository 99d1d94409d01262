#include "src/command_line/man_page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/command_line/help.hpp"
#include "tests/command_line/program.hpp"

namespace holdfast::command_line {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ManPage, HasEveryVerbThatUsersMaySee) {
  test::Program program;
  add_examples(*program.app.get_subcommand("submit"), {"holdfast submit --set a=1"});
  const std::string page = man_page(program.app, "1.2");
  EXPECT_THAT(page, testing::StartsWith(".TH HOLDFAST 1 \"\" \"Holdfast 1.2\""));
  EXPECT_THAT(page, HasSubstr(".SS \"holdfast submit JOB.toml [OPTIONS]\"\nSubmit a job.\n"));
  EXPECT_THAT(page, HasSubstr(".TP\n.B \\-j, \\-\\-json\nPrint JSON\n"));
  EXPECT_THAT(page, HasSubstr("holdfast ctl stop [NODE] [OPTIONS]"));
  EXPECT_THAT(page, HasSubstr(".EX\n  holdfast submit \\-\\-set a=1\n.EE\n"));
  EXPECT_THAT(page, Not(HasSubstr("Not for users")));
  EXPECT_THAT(page, Not(HasSubstr("Is another program"))) << "which has a page of its own";
}

TEST(ManPage, EscapesWhatTroffWouldTakeForARequest) {
  CLI::App app(".not a request \\n", "holdfast");
  EXPECT_THAT(man_page(app, "1"), HasSubstr(".SH DESCRIPTION\n\\&.not a request \\en\n"));
}

}  // namespace
}  // namespace holdfast::command_line
