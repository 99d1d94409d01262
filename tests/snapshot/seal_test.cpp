// Seals: what is written is read again, and nothing else.
#include "src/snapshot/seal.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace holdfast::snapshot {
namespace {

const Seal a_seal{12, 3, 4, {{"model", 1000, 0xab}, {"optim.0", 16, 0xffffffff}}};

std::string with_end(const std::string& body) {
  return body + fmt::format("end {:08x}\n", crc32_of(0, body.data(), body.size()));
}

TEST(Seals, AreTextThatComesBack) {
  EXPECT_EQ(to_text(a_seal),
            with_end("holdfast seal 1\nstep 12\nattempt 3\nworld 4\nbuffer model 1000 000000ab\n"
                     "buffer optim.0 16 ffffffff\n"));
  EXPECT_EQ(seal_of(to_text(a_seal)), a_seal);
}

TEST(Seals, TheChecksumIsThatOfZlib) { EXPECT_EQ(crc32_of(0, "123456789", 9), 0xcbf43926u); }

TEST(Seals, EveryChangedByteIsNoticed) {
  const std::string text = to_text(a_seal);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(seal_of(changed)) << i;
    EXPECT_FALSE(seal_of(text.substr(0, i))) << i;
  }
}

TEST(Seals, OthersAreRefusedThoughTheirChecksumHolds) {
  const std::string head = "holdfast seal 1\nstep 12\nattempt 3\nworld 4\n";
  EXPECT_TRUE(seal_of(with_end(head)));
  for (const char* body :
       {"holdfast seal 2\nstep 12\nattempt 3\nworld 4\n", "holdfast seal 1\nstep -1\nattempt 3\nworld 4\n",
        "holdfast seal 1\nstep 9007199254740993\nattempt 3\nworld 4\n",  // no message could say it
        "holdfast seal 1\nstep 1\nattempt 3\nworld 1048577\n",
        "holdfast seal 1\nstep 1\nattempt 3\nworld 0\n", "holdfast seal 1\nstep 1\nattempt 3\n"})
    EXPECT_FALSE(seal_of(with_end(body))) << body;
  for (const char* line :
       {"buffer ../../x 1 00000000\n", "buffer .x 1 00000000\n", "buffer a/b 1 00000000\n",
        "buffer a 0 00000000\n", "buffer a -5 00000000\n", "buffer a 1 0000000\n", "buffer a 1\n",
        "buffer  1 00000000\n", "what a 1 0000000a\n", "buffer a 1 00000000\nbuffer a 2 00000000\n",
        "buffer b 1 00000000\nbuffer a 1 00000000\n"})
    EXPECT_FALSE(seal_of(with_end(head + line))) << line;
}

TEST(Seals, FoldersHaveNamesThatComeBack) {
  EXPECT_EQ(folder_name(7, false), "rank-00007");
  EXPECT_EQ(folder_called("copy-00007"), std::pair(7, true));
  for (const char* name :
       {"rank-7", "rank-", "rank", "port", "copy-0000x", "seal-00007", "rank--0007", "rank-9999999"})
    EXPECT_FALSE(folder_called(name)) << name;
}

}  // namespace
}  // namespace holdfast::snapshot
