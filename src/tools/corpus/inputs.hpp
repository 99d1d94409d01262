#pragma once
// Which files a corpus is made of, and how they are cut into parts that may be worked on at the same time.
// The parts are a function of names and sizes alone.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/tools/corpus/byte_stream.hpp"
#include "src/tools/corpus/settings.hpp"

namespace holdfast::corpus {

/// A file. For Megatron's pairs the .idx; `bytes` are then those of the .bin.
struct Input {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::int64_t changed_ns = 0;  ///< time of its last change: files that differ are not taken for the same
  Format format = Format::text;
  Compression compression = Compression::none;
  bool array = false;  ///< of JSON: one array, whose elements are what lines are elsewhere
};

/// Files below each of `settings.input`, in the order given: a file stands for itself; a folder for all
/// regular files below it, sorted by the bytes of their paths, without hidden ones, what Spark leaves beside
/// its parts (_SUCCESS, *.crc), and our own outputs. Where these are lines or tokens, what describes a data
/// set is no part of it: README, LICENSE and their like. Error (usage) when an input is missing or cannot be
/// read, when it is one of our outputs, when it is of a kind that cannot be read (Parquet, archives, Git LFS
/// pointers), or when all are empty.
struct Inputs {
  std::vector<Input> files;
  std::vector<std::filesystem::path> left_out;  ///< descriptions of a data set, in its folder
};
Inputs inputs_of(const Settings& settings);

/// Bytes [begin, end) of a file: the lines that begin there; the whole file where it is not cut.
struct Range {
  std::uint32_t input = 0;
  std::uint64_t begin = 0, end = 0;
  bool operator==(const Range&) const = default;
};
using Part = std::vector<Range>;

/// Parts of about 1 to 64 MiB: plain files of lines are cut, others (arrays, too) are not, small files share
/// a part.
std::vector<Part> parts_of(const std::vector<Input>& inputs);

/// Where the tail begins that is held out: in file `input` at byte `at`.
struct Border {
  std::uint32_t input = 0;
  std::uint64_t at = 0;
  /// Is a document that begins there held out?
  bool is_behind(std::uint32_t other_input, std::uint64_t other_at) const {
    return other_input != input ? other_input > input : other_at >= at;
  }
};
Border tail_border(const std::vector<Input>& inputs, double val_fraction);

std::uint64_t total_bytes(const std::vector<Input>& inputs);
/// About as many as there are after decompression: text becomes a quarter, by experience.
std::uint64_t total_text_bytes(const std::vector<Input>& inputs);

}  // namespace holdfast::corpus
