#include "src/config/optim_group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/config/scratch.hpp"

namespace holdfast::config {
namespace {

using testing::HasSubstr;

std::vector<OptimGroup> parsed(std::vector<std::string> texts) {
  Optim optim;
  optim.groups = std::move(texts);
  return optim_groups(optim);
}

TEST(OptimGroup, ReadsWhatIsDifferent) {
  EXPECT_TRUE(parsed({}).empty());
  EXPECT_EQ(parsed({"*norm* weight_decay=0", "  model.embed_tokens*   lr_scale=0.5  weight_decay=1e-2 "}),
            (std::vector<OptimGroup>{{"*norm*", 1, 0.0}, {"model.embed_tokens*", 0.5, 1e-2}}));
  EXPECT_FALSE(parsed({"* lr_scale=2"})[0].weight_decay.has_value());
}

TEST(OptimGroup, IsStrict) {
  struct Case {
    const char *text, *says;
  };
  for (const Case& c :
       {Case{"", "\"\" is not a group (it is empty). Write \"GLOB lr_scale=X weight_decay=Y\"?"},
        {"   ", "it is empty"},
        {"*", "(it changes nothing). Add lr_scale=NUMBER or weight_decay=NUMBER?"},
        {"lr_scale=1", "(it begins with a setting)"},
        {"* lr_sclae=1",
         "(a group has lr_scale and weight_decay, not 'lr_sclae'). Did you "
         "mean lr_scale?"},
        {"* x", "not 'x')"},
        {"* lr_scale", "(lr_scale has no value)"},
        {"* lr_scale=", "(lr_scale must be a number of at least 0, not '')"},
        {"* lr_scale=a", "not 'a')"},
        {"* lr_scale=1x", "not '1x')"},
        {"* lr_scale=-1", "not '-1')"},
        {"* weight_decay=nan", "not 'nan')"},
        {"* weight_decay=inf", "not 'inf')"},
        {"* lr_scale=1e999", "not '1e999')"},
        {"* lr_scale=1 lr_scale=2", "(lr_scale is there twice)"},
        {"* weight_decay=1 weight_decay=1", "(weight_decay is there twice)"}}) {
    SCOPED_TRACE(c.text);
    const auto refusal = test::refusal_of([&] { parsed({c.text}); });
    EXPECT_THAT(refusal.text, HasSubstr(c.says));
    EXPECT_EQ(refusal.exit, Exit::usage);
  }
  const std::vector<std::string> eight(8, "* lr_scale=2");
  EXPECT_EQ(test::refusal_of([&] { parsed(eight); }).text,
            "optim.groups has 8 groups (there can be 7). Let one glob match more tensors?");
  EXPECT_EQ(parsed(std::vector<std::string>(7, "* lr_scale=2")).size(), 7u);
}

TEST(OptimGroup, TheFirstMatchCounts) {
  const auto groups = parsed({"*.q_proj.* lr_scale=2", "*_proj.weight lr_scale=3", "* lr_scale=4"});
  EXPECT_EQ(group_of(groups, "model.layers.0.self_attn.q_proj.weight"), 1);
  EXPECT_EQ(group_of(groups, "model.layers.0.self_attn.k_proj.weight"), 2);
  EXPECT_EQ(group_of(groups, "model.norm.weight"), 3);
  EXPECT_EQ(group_of({}, "model.norm.weight"), 0);
}

TEST(OptimGroup, GlobsMatchTheWholeName) {
  struct Case {
    const char *glob, *name;
    bool match;
  };
  for (const Case& c :
       {Case{"", "", true},      {"", "a", false},         {"*", "", true},           {"*", "abc", true},
        {"**", "abc", true},     {"?", "", false},         {"?", "a", true},          {"??", "a", false},
        {"a*", "abc", true},     {"*c", "abc", true},      {"*b", "abc", false},      {"a*c", "abc", true},
        {"a*c", "ac", true},     {"a*b*c", "axbyc", true}, {"a*b*c", "axcyb", false}, {"*aab", "aaab", true},
        {"*a*b", "abab", true},  {"*a?b", "aab", true},    {"a.b", "axb", false},     {"abc", "abcd", false},
        {"*ab*ab", "ab", false}, {"[a]", "a", false}})
    EXPECT_EQ(matches(c.glob, c.name), c.match) << c.glob << " " << c.name;
}

}  // namespace
}  // namespace holdfast::config
