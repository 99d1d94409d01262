// Keys of `holdfast watch`: nothing is ordered without a yes.
#include "launcher/watch/dialog.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/watch/text.hpp"

namespace holdfast::launcher::watch {
namespace {

using testing::HasSubstr;
using WatchVerb = control::Order::Verb;

/// The order to which the keys lead, and none before the last key.
std::optional<Confirmed> after(Dialog& dialog, const std::string& keys, const Situation& now = {}) {
  std::optional<Confirmed> order;
  for (const char key : keys) {
    EXPECT_FALSE(order) << "before '" << key << "'";
    order = dialog.take(key, now);
  }
  return order;
}
std::optional<Confirmed> after(const std::string& keys, const Situation& now = {}) {
  Dialog dialog;
  return after(dialog, keys, now);
}

TEST(WatchDialog, OrdersAfterAYes) {
  EXPECT_EQ(after("sy"), (Confirmed{WatchVerb::save, ""}));
  EXPECT_EQ(after("py"), (Confirmed{WatchVerb::pause, ""}));
  EXPECT_EQ(after("py", {.paused = true}), (Confirmed{WatchVerb::resume, ""}));
  EXPECT_EQ(after("xY"), (Confirmed{WatchVerb::stop, ""}));
  EXPECT_EQ(after("edgx00x\x7f"
                  "3\ry"),
            (Confirmed{WatchVerb::evict, "dgx003"}));
}
TEST(WatchDialog, AnyOtherAnswerIsNo) {
  for (const std::string key : {"s", "p", "x", "edgx003\r"})
    for (const std::string answer : {"n", "s", "x", " ", "\r", "\x1b", "q"}) {
      Dialog dialog;
      EXPECT_FALSE(after(dialog, key + answer));
      EXPECT_FALSE(dialog.asks());
      EXPECT_FALSE(dialog.quit()) << "q only said no";
    }
}
TEST(WatchDialog, NoNodeNoEviction) {
  EXPECT_FALSE(after("e\ry"));
  EXPECT_FALSE(after("edgx\x1by"));
  EXPECT_EQ(after("e;\x01 $a\ry"), (Confirmed{WatchVerb::evict, "a"})) << "only what a name may have";
}
TEST(WatchDialog, NobodyTakesOrdersOfARunThatIsOver) {
  const Situation over{.over = true};
  for (const char* keys : {"sy", "py", "xy", "ea\ry"}) EXPECT_FALSE(after(keys, over));
  EXPECT_EQ(Dialog().line(over), "r replay  q quit");
}
TEST(WatchDialog, Quits) {
  Dialog dialog;
  after(dialog, "q");
  EXPECT_TRUE(dialog.quit());
}
TEST(WatchDialog, ItsQuestionNamesTheNode) {
  Dialog dialog;
  after(dialog, "edgx003");
  EXPECT_THAT(dialog.line({}), HasSubstr("dgx003_"));
  after(dialog, "\r");
  EXPECT_THAT(dialog.line({}), HasSubstr("Save, then take dgx003 out?"));
}

TEST(WatchText, EscapeSequencesAreNotTyped) {
  EXPECT_EQ(typed("s\x1b[Ay"), "sy");
  EXPECT_EQ(typed("a\x1b[D\x1b[Cb\x1bOD\x1bOC"), "a<>b<>");
  EXPECT_EQ(typed("\x1b[1;5Cx"), "x");
  EXPECT_EQ(typed("\x1bOs"
                  "q"),
            "q");
  EXPECT_EQ(typed("\x1bx"), "") << "Alt and a letter";
  EXPECT_EQ(typed("\x1b"), "\x1b");
  EXPECT_EQ(typed("\x1b["), "");
  EXPECT_EQ(typed("\x1b[12"), "");
  EXPECT_EQ(typed("\x1bO"), "");
}
TEST(WatchText, IsCutByColumns) {
  EXPECT_EQ(fitted("caf\xC3\xA9", 4), "caf\xC3\xA9");
  EXPECT_EQ(fitted("caf\xC3\xA9s", 4), "caf~");
  EXPECT_EQ(padded("\xC3\xA9", 3), "\xC3\xA9  ");
  EXPECT_EQ(fitted("abc", 0), "");
}

}  // namespace
}  // namespace holdfast::launcher::watch
