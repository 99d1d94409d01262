#pragma once
// What a corpus consists of.
#include <cstdint>
#include <string>

namespace holdfast::corpus {

/// A text and where it came from: enough to name it in a message and to order it.
struct Document {
  std::string text;         ///< valid UTF-8
  std::uint32_t input = 0;  ///< number of its file in the list of inputs
  std::uint64_t line =
      0;  ///< JSONL: its line, from 1, counted from the begin of the piece that is read; else 0
  std::uint64_t begin = 0;  ///< JSONL: byte of its file at which its line begins, before compression; else 0
};

}  // namespace holdfast::corpus
