// What the client in C has of its own: SHA-512 and HMAC against published values and libsodium's, JSON.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "src/base/as_size.hpp"
#include "src/control/secret.hpp"
#include "tests/control/loop_thread.hpp"
extern "C" {
#include "client/buffers.h"
#include "client/json.h"
#include "client/sha512.h"
}

namespace holdfast {
namespace {

using nlohmann::json;

std::string sha512(const std::string& text, std::size_t at_once = SIZE_MAX) {
  hfc_sha512 hash;
  hfc_sha512_begin(&hash);
  for (std::size_t i = 0; i < text.size(); i += std::min(at_once, text.size() - i))
    hfc_sha512_add(&hash, text.data() + i, std::min(at_once, text.size() - i));
  unsigned char out[64];
  hfc_sha512_end(&hash, out);
  std::string hex;
  for (const unsigned char byte : out) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    hex += digits;
  }
  return hex;
}

// NIST, FIPS 180-4 examples and SHA512ShortMsg.
TEST(ClientSha512, PublishedValues) {
  EXPECT_EQ(sha512(""),
            "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce"
            "47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e");
  EXPECT_EQ(sha512("abc"),
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
            "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f");
  EXPECT_EQ(
      sha512(
          "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrs"
          "mnopqrstnopqrstu"),
      "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018"
      "501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909");
  const std::string million(1000000, 'a');
  for (const std::size_t at_once : {std::size_t{1}, std::size_t{127}, std::size_t{129}, SIZE_MAX})
    EXPECT_EQ(sha512(million, at_once),
              "e718483d0ce769644e2e42c7bc15b4638e1f98b13b2044285632a803afa973eb"
              "de0ff244877ea60a4cb0432ce577c31beb009c5c2c49aa2e4eadb217ad8cc09b");
}

TEST(ClientSha512, MacIsThatOfTheProtocol) {
  std::mt19937 random(7);
  for (std::size_t size : {0u, 1u, 111u, 112u, 127u, 128u, 129u, 1000u}) {
    control::Key key;
    for (auto& byte : key) byte = static_cast<unsigned char>(random());
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(random());
    hfc_mac mac;
    hfc_mac_begin(&mac, key.data());
    hfc_mac_add(&mac, text.data(), size / 2);
    hfc_mac_add(&mac, text.data() + size / 2, size - size / 2);
    control::Key out;
    hfc_mac_end(&mac, out.data());
    EXPECT_EQ(out, control::mac(key, text)) << size;
    char hex[65];
    hfc_to_hex(out.data(), hex);
    EXPECT_EQ(hex, control::to_hex(out));
    control::Key back;
    ASSERT_TRUE(hfc_from_hex(hex, 64, back.data()));
    EXPECT_TRUE(hfc_same(back.data(), out.data()));
    back[31] ^= 1;
    EXPECT_FALSE(hfc_same(back.data(), out.data()));
    EXPECT_FALSE(hfc_from_hex(hex, 63, back.data()));
  }
}

std::string text_in(const std::string& line, const char* name, std::size_t size = 256) {
  std::string out(size, '\0');
  return hfc_json_text(line.data(), line.size(), name, out.data(), size) ? std::string(out.c_str()) : "none";
}

TEST(ClientJson, ReadsOneField) {
  const std::string line =
      R"( {"a" : [1, {"b": "]}"}, null, -1.5e3], "s":"x\n\"\u00e9\ud83d\ude00\\", "n":-42, "yes":true, "no": false, "e":{}})";
  EXPECT_EQ(text_in(line, "s"), "x\n\"\u00e9??\\");
  EXPECT_EQ(text_in(line, "s", 3), "x\n");
  EXPECT_EQ(text_in(line, "n"), "none");
  EXPECT_EQ(text_in(line, "b"), "none") << "it is not of the outermost object";
  std::int64_t number = 0;
  EXPECT_TRUE(hfc_json_integer(line.data(), line.size(), "n", &number));
  EXPECT_EQ(number, -42);
  EXPECT_FALSE(hfc_json_integer(line.data(), line.size(), "s", &number));
  int flag = 0;
  EXPECT_TRUE(hfc_json_bool(line.data(), line.size(), "yes", &flag) && flag == 1);
  EXPECT_TRUE(hfc_json_bool(line.data(), line.size(), "no", &flag) && flag == 0);
  EXPECT_FALSE(hfc_json_bool(line.data(), line.size(), "n", &flag));
  for (const std::string& bad : {std::string(), std::string("{"), std::string("[]"), std::string("{\"n\""),
                                 std::string("{\"n\":"), std::string("{\"n\":1.5}"),
                                 std::string("{\"n\":9e9}"), "{\"a\":" + std::string(1000, '[') + ",\"n\":1}",
                                 std::string("{\"n\":\"1\"}"), std::string("{\"n\":99999999999999999999}")})
    EXPECT_FALSE(hfc_json_integer(bad.data(), bad.size(), "n", &number)) << bad;
}

TEST(ClientJson, PlainTextIsUtf8WithoutControlCharacters) {
  for (const char* plain : {"", "a b/c", "\xc3\xa9", "\xf0\x9f\x98\x80", "\"\\"})
    EXPECT_TRUE(hfc_json_is_plain(plain));
  for (const char* odd : {"a\nb", "\x7f", "caf\xe9", "\xed\xa0\x80", "\xc3"})
    EXPECT_FALSE(hfc_json_is_plain(odd));
}

TEST(ClientJson, WhatItWritesIsJson) {
  std::mt19937 random(11);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 40, '\0');
    for (char& c : text) c = static_cast<char>(i % 2 ? random() % 255 + 1 : "\"\\\n\tä€z"[random() % 9]);
    text = text.c_str();
    std::string out(6 * 64 + 3, '\0');
    hfc_json_quote(text.c_str(), 64, out.data());
    const json read = json::parse(out.c_str(), nullptr, false);
    ASSERT_TRUE(read.is_string()) << out.c_str();
    const std::string line = std::string("{\"s\":") + out.c_str() + "}";
    EXPECT_EQ(text_in(line, "s"), read.get<std::string>());
  }
}

/// Any bytes, of which every end is looked at: under the sanitizers nothing behind them may be read.
TEST(ClientJson, AnyBytes) {
  const std::string whole =
      R"({"m":"drain","stop":true,"reason":"a \u00e9\\ b","until":12,"x":[{"y":[]},-1.5,null]})";
  std::mt19937 random(13);
  for (int i = 0; i < 20000; ++i) {
    std::string text = whole.substr(0, random() % (whole.size() + 1));
    if (!text.empty() && i % 3) text[random() % text.size()] = static_cast<char>(random());
    const std::vector<char> exact(text.begin(), text.end());  // no NUL behind it
    char out[16];
    std::int64_t number;
    int flag;
    for (const char* name : {"m", "reason", "until", "stop", "x", ""}) {
      hfc_json_text(exact.data(), exact.size(), name, out, sizeof out);
      EXPECT_LT(std::strlen(out), sizeof out);
      hfc_json_integer(exact.data(), exact.size(), name, &number);
      hfc_json_bool(exact.data(), exact.size(), name, &flag);
    }
  }
}

int waits_for_copies = 0;

TEST(ClientBuffers, AMoverThatDoesNotAnswerIsAwaitedOnce) {
  const control::test::Folder folder;
  hfc_place_of_buffers place{folder.path.c_str(), 1000, 5, 1, -1, 0, nullptr, 1, 20};
  place.waits = [](int on) { waits_for_copies += on; };
  hfc_buffers_open(&place);
  const auto waits = [](std::int64_t step) {
    const int before = waits_for_copies;
    hfc_wait_for_copy(step);
    return waits_for_copies > before;
  };
  testing::internal::CaptureStderr();
  EXPECT_TRUE(waits(1));
  EXPECT_FALSE(waits(2));
  EXPECT_FALSE(waits(3));
  std::ofstream(folder.path / "copied") << "5 2\n";
  EXPECT_FALSE(waits(2));
  EXPECT_TRUE(waits(4));
  EXPECT_FALSE(waits(5));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("has not copied the buffers of step 1"), std::string::npos) << said;
  EXPECT_EQ(said.find("of step 4"), std::string::npos) << said;
}

}  // namespace
}  // namespace holdfast
