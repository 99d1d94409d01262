// JSON from anywhere: how deep it may nest, and fields of another type than they should have.
#include "src/base/strict_json.hpp"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

std::string nested(std::size_t deep, char open = '[', char close = ']') {
  return std::string(deep, open) + std::string(deep, close);
}

TEST(StrictJson, NestsAtMostSoDeep) {
  EXPECT_TRUE(json_from(nested(deepest_json + 1)).is_array());
  EXPECT_TRUE(json_from(nested(deepest_json + 2)).is_discarded());
  for (const std::size_t deep : {1000u, 300000u, 5000000u}) {
    EXPECT_TRUE(json_from(nested(deep)).is_discarded());
    EXPECT_TRUE(json_from(std::string(deep, '[')).is_discarded());
    EXPECT_TRUE(json_from("{\"a\":" + nested(deep) + "}").is_discarded());
    std::string objects;
    for (std::size_t i = 0; i < deep; ++i) objects += "{\"a\":";
    EXPECT_TRUE(json_from(objects + "1" + std::string(deep, '}')).is_discarded());
  }
  EXPECT_TRUE(
      json_from("[\"" + std::string(100000, '[') + "\\\"" + std::string(100000, '{') + "\"]").is_array())
      << "brackets in a text";
  EXPECT_FALSE(nests_deeper("]]]]" + nested(3), 3)) << "a parser sees none of it";
}

TEST(StrictJson, WhatIsNoneIsDiscarded) {
  for (const char* text : {"", "{", "{\"a\":1", "[1,]", "\"\xff\"", "nul"}) {
    const auto json = json_from(text);
    EXPECT_TRUE(json.is_discarded()) << text;
    EXPECT_THROW((void)json.at("a"), nlohmann::json::exception);
    EXPECT_EQ(typed<int>(json, "a"), std::nullopt);
  }
}

TEST(StrictJson, AFieldHasItsTypeOrIsAbsent) {
  const auto json = json_from(R"({"n":7,"f":2.5,"t":"x","b":true,"z":null,"l":[1],"big":18446744073709551615,
                                  "minus":-1,"huge":1e300})");
  EXPECT_EQ(typed<int>(json, "n"), 7);
  EXPECT_EQ(typed<double>(json, "n"), 7.0);
  EXPECT_EQ(typed<double>(json, "f"), 2.5);
  EXPECT_EQ(typed<std::string>(json, "t"), "x");
  EXPECT_EQ(typed<bool>(json, "b"), true);
  EXPECT_EQ(typed<std::uint64_t>(json, "big"), 18446744073709551615u);
  EXPECT_EQ(typed<std::int64_t>(json, "big"), std::nullopt);
  EXPECT_EQ(typed<std::uint32_t>(json, "minus"), std::nullopt);
  for (const char* key : {"f", "t", "b", "z", "l", "big", "huge", "missing"})
    EXPECT_EQ(typed<int>(json, key), std::nullopt) << key;
  for (const char* key : {"t", "b", "z", "l"}) EXPECT_EQ(typed<double>(json, key), std::nullopt) << key;
  for (const char* key : {"n", "b", "z", "l"}) EXPECT_EQ(typed<std::string>(json, key), std::nullopt) << key;
  for (const char* key : {"n", "t", "z", "l"}) EXPECT_EQ(typed<bool>(json, key), std::nullopt) << key;
  EXPECT_EQ(typed<int>(json_from("[1]"), "n"), std::nullopt);
}

TEST(StrictJson, TextOfAnything) {
  EXPECT_EQ(json_text(nlohmann::json{{"a", "\x9b"}}), R"({"a":"\ufffd"})") << "no UTF-8";
  EXPECT_EQ(json_text(nlohmann::json{{"a", "\xe2\x80\xae\x1b[2J\xc3\xa9"}}),
            R"({"a":"\u202e\u001b[2J\u00e9"})")
      << "a terminal obeys none of it";
}

}  // namespace
}  // namespace holdfast
