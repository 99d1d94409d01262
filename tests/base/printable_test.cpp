// Text of others: what a terminal may get of it, and that nothing passes the standard streams of a verb.
#include "src/base/printable.hpp"

#include <gtest/gtest.h>

#include <iostream>
#include <random>
#include <sstream>

#include "src/base/log.hpp"
#include "src/base/utf8.hpp"

namespace holdfast {
namespace {

const std::string replaced(utf8::replacement);

TEST(Printable, WhatATerminalObeysIsReplaced) {
  EXPECT_EQ(printable("plain\ttext\nof 2 lines, caf\xc3\xa9, \xe6\xbc\xa2"),
            "plain\ttext\nof 2 lines, caf\xc3\xa9, \xe6\xbc\xa2");
  EXPECT_EQ(printable("\x1b[2J"), replaced + "[2J");
  EXPECT_EQ(printable(std::string("a\0b\x07\x08\x7f", 6)),
            "a" + replaced + "b" + replaced + replaced + replaced);
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m\xc2\x80\xc2\x9f\xc2\xa0"),
            replaced + "31m" + replaced + replaced + "\xc2\xa0");
  for (const std::uint32_t c : {0x61C, 0x200E, 0x200F, 0x202A, 0x202E, 0x2066, 0x2069}) {
    std::string text;
    utf8::append(text, c);
    EXPECT_EQ(printable(text), replaced) << c;
  }
  for (const std::uint32_t c : {0x61B, 0x200D, 0x2010, 0x2029, 0x202F, 0x2065, 0x206A}) {
    std::string text;
    utf8::append(text, c);
    EXPECT_EQ(printable(text), text) << c;
  }
  EXPECT_EQ(printable("\x9b"
                      "31m \xc3"),
            replaced + "31m " + replaced)
      << "not UTF-8";
  EXPECT_EQ(printable("one\r\ntwo\rthree\r"), "one\ntwo\nthree\n");
  EXPECT_EQ(printable_line("one\ttwo\r\nthree\x1b"), "one two three" + replaced);
}

/// However the text comes in pieces.
TEST(Printable, TheStreamsOfAVerb) {
  std::mt19937 random(1);
  const std::string text =
      "caf\xc3\xa9 \x1b[31m\xe2\x80\xae"
      "x\r\ny\xc2\x9b z \xff \xf0\x9f\x98\x80 \xe2\x80";
  for (int round = 0; round < 200; ++round) {
    std::ostringstream out;
    auto* const before = std::cout.rdbuf(out.rdbuf());
    {
      const PrintableStreams streams;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t bytes = std::min<std::size_t>(1 + random() % 5, text.size() - at);
        std::cout << text.substr(at, bytes) << std::flush;
        at += bytes;
      }
    }
    std::cout.rdbuf(before);
    ASSERT_EQ(out.str(), printable(text));
  }
}

TEST(Printable, TheLog) {
  std::string said;
  log::start_for([&](std::string_view line) { said = line; });
  log::warn("node {} says {}", "n\x1b]0;x\x07",
            "\xc2\x9b"
            "2J");
  log::start("");
  EXPECT_EQ(said, "node n" + replaced + "]0;x" + replaced + " says " + replaced + "2J");
}

}  // namespace
}  // namespace holdfast
