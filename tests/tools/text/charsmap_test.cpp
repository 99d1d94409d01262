#include "src/tools/text/charsmap.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace holdfast::text {
namespace {

constexpr std::uint32_t block = 256, value_bit = 1U << 31, key_bit = 1U << 8;

std::string charsmap_of(const std::vector<std::uint32_t>& units, const std::string& texts) {
  const auto bytes = static_cast<std::uint32_t>(units.size() * sizeof units[0]);
  std::string out(sizeof bytes, '\0');
  std::memcpy(out.data(), &bytes, sizeof bytes);
  for (const std::uint32_t unit : units) out.append(reinterpret_cast<const char*>(&unit), sizeof unit);
  return out + texts;
}

/// The keys "a", "aa" and so on, `keys` of them, all with the value `text`. The nodes behind i letters have
/// block i + 1; those behind the last one that of `next`, if it is not 0.
std::vector<std::uint32_t> letters(std::uint32_t keys, std::uint32_t text, std::uint32_t next = 0) {
  std::vector<std::uint32_t> units((keys + 2) * block);
  for (std::uint32_t i = 0; i < units.size(); ++i) units[i] = ~i % block;  // nobody's children
  units[0] = block << 10;
  for (std::uint32_t i = 1; i <= keys; ++i) {
    const std::uint32_t node = i * block ^ 'a', behind = (i == keys && next > 0 ? next : i + 1) * block;
    units[node] = (node ^ behind) << 10 | key_bit | 'a';
    units[behind] = value_bit | text;
  }
  return units;
}

const std::string texts("x\0y\0", 4);

TEST(Charsmap, IsSoundWhereEveryWayHasAnEnd) {
  EXPECT_TRUE(sound_charsmap(charsmap_of(letters(1, 0), texts)));
  EXPECT_TRUE(sound_charsmap(charsmap_of(letters(32, 2), texts)));
}

TEST(Charsmap, SentencePieceHasRoomForThirtyTwoPrefixes) {
  EXPECT_FALSE(sound_charsmap(charsmap_of(letters(33, 2), texts)));
  EXPECT_FALSE(sound_charsmap(charsmap_of(letters(3, 2, 2), texts))) << "a circle";
}

TEST(Charsmap, EveryKeyLeadsToTheBeginningOfAText) {
  EXPECT_FALSE(sound_charsmap(charsmap_of(letters(2, 1), texts)));
  EXPECT_FALSE(sound_charsmap(charsmap_of(letters(2, 4), texts)));
  EXPECT_FALSE(sound_charsmap(charsmap_of(letters(2, 0), "x")));
  EXPECT_FALSE(sound_charsmap(charsmap_of(letters(2, 0), "")));
  EXPECT_FALSE(sound_charsmap(charsmap_of(letters(2, 0), std::string("\xFF\0", 2)))) << "no UTF-8";
}

TEST(Charsmap, NoNodeLeadsOutOfTheTrie) {
  auto units = letters(2, 0);
  units[2 * block ^ 'a'] |= 1U << 30;
  EXPECT_FALSE(sound_charsmap(charsmap_of(units, texts)));
  units = letters(2, 0);
  units[0] |= value_bit;
  EXPECT_FALSE(sound_charsmap(charsmap_of(units, texts)));
}

TEST(Charsmap, SizesFit) {
  const std::string sound = charsmap_of(letters(2, 0), texts);
  EXPECT_FALSE(sound_charsmap(""));
  EXPECT_FALSE(sound_charsmap(sound.substr(0, 3)));
  EXPECT_FALSE(sound_charsmap(sound.substr(0, sound.size() - texts.size())));
  auto units = letters(2, 0);
  units.pop_back();
  EXPECT_FALSE(sound_charsmap(charsmap_of(units, texts)));
  EXPECT_FALSE(sound_charsmap(charsmap_of({}, texts)));
}

}  // namespace
}  // namespace holdfast::text
