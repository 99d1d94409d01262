#include "slurm/hostlist.hpp"

#include <gmock/gmock.h>

#include <random>

#include "src/base/error.hpp"

namespace holdfast::slurm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Hostlist, expands_what_slurm_writes) {
  EXPECT_THAT(expand("dgx[001-003,006],login"), ElementsAre("dgx001", "dgx002", "dgx003", "dgx006", "login"));
  EXPECT_THAT(expand("dgx001"), ElementsAre("dgx001"));
  EXPECT_THAT(expand("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(expand("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(expand("n[98-101]"), ElementsAre("n98", "n99", "n100", "n101"));
  EXPECT_THAT(expand("r[1-2]n[01-02]-ib"), ElementsAre("r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib"));
  EXPECT_THAT(expand("[3,1]"), ElementsAre("3", "1"));
  EXPECT_THAT(expand(""), IsEmpty());
  EXPECT_EQ(expand("dgx[001-127]").size(), 127u);
}

TEST(Hostlist, keeps_order_and_repeats) {
  EXPECT_THAT(expand("b,a,b"), ElementsAre("b", "a", "b"));
  EXPECT_EQ(compress({"dgx003", "dgx001", "dgx002", "dgx001"}), "dgx[003,001-002,001]");
}

TEST(Hostlist, compresses_as_people_write) {
  EXPECT_EQ(compress({}), "");
  EXPECT_EQ(compress({"login"}), "login");
  EXPECT_EQ(compress({"dgx007"}), "dgx007");
  EXPECT_EQ(compress({"dgx001", "dgx002", "dgx003", "dgx006", "login"}), "dgx[001-003,006],login");
  EXPECT_EQ(compress({"n8", "n9", "n10"}), "n[8-10]");
  EXPECT_EQ(compress({"n09", "n10", "n11"}), "n[09-11]");
  EXPECT_EQ(compress({"n99", "n0100"}), "n[99,0100]");
  EXPECT_EQ(compress({"n9", "n010"}), "n[9,010]");
  EXPECT_EQ(compress({"n099", "n100"}), "n[099-100]");
  EXPECT_EQ(compress({"n09", "n10", "n99", "n100"}), "n[09-10,99-100]");
}

TEST(Hostlist, refuses_nonsense_with_a_place) {
  for (const char* text : {"dgx[",        "dgx]",       "dgx[]",
                           "dgx[1",       "dgx[1-",     "dgx[1-]",
                           "dgx[-1]",     "dgx[3-1]",   "dgx[1,]",
                           "dgx[,1]",     "dgx[a]",     "dgx[1-2-3]",
                           ",",           "a,",         ",a",
                           "a,,b",        "a b",        " a",
                           "a;b",         "$(id)",      "a\nb",
                           "a'b",         "dgx[[1]]",   "dgx[1]]",
                           "dgx[009-10]", "dgx[9-010]", "dgx[1000000000000000000000]",
                           "(null)",      "dgx[0x10]",  "dgx[ 1]",
                           "ä",           "dgx[1:3]"}) {
    try {
      expand(text);
      ADD_FAILURE() << "accepted " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::usage) << text;
    }
  }
  EXPECT_THROW(expand(std::string("a\0b", 3)), Error);
  EXPECT_THROW(expand(std::string(300, 'a')), Error);
}

TEST(Hostlist, is_bounded) {
  EXPECT_EQ(expand("n[1-65536]").size(), max_hosts);
  for (const char* text : {"n[0-65536]", "n[0-999999999999999999]", "a[1-300]b[1-300]", "n[1-65536],x",
                           "n[1-65535,1-2]", "a[0-9]b[0-9]c[0-9]d[0-9]e[0-9]f[0-9]g[0-9]h[0-9]i[0-9]"})
    EXPECT_THROW(expand(text), Error) << text;
}

TEST(Hostlist, round_trips_every_list) {
  std::mt19937 random(7);
  const std::vector<std::string> stems = {"dgx", "n", "a-1-", "x9y", ""};
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> names;
    std::uint64_t number = random() % 120;
    for (unsigned i = 0, n = random() % 40; i < n; ++i) {
      number = random() % 4 ? number + 1 : random() % 1200;
      std::string digits = std::to_string(number);
      if (const std::size_t width = random() % 4; digits.size() < width)
        digits.insert(0, width - digits.size(), '0');
      names.push_back(stems[random() % 8 ? 0 : random() % stems.size()] +
                      (random() % 16 ? digits : digits + "z"));
    }
    EXPECT_EQ(expand(compress(names)), names) << compress(names);
  }
  for (const char* name : {"0", "00", "n000", "n999999999999999999", "n99999999999999999999999",
                           "12345678901234567890123456789"})
    EXPECT_THAT(expand(compress({name, name})), ElementsAre(name, name));
}

TEST(Hostlist, survives_random_text) {
  std::mt19937 random(11);
  const std::string alphabet = "dgx019[]-,, ";
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (unsigned i = 0, n = random() % 14; i < n; ++i) text += alphabet[random() % alphabet.size()];
    try {
      const auto names = expand(text);
      EXPECT_EQ(expand(compress(names)), names) << text;
      ++accepted;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace holdfast::slurm
