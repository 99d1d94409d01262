#pragma once
// The documents of a part, one after the other, and what was wrong with the others.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/tools/corpus/crew.hpp"
#include "src/tools/corpus/document.hpp"
#include "src/tools/corpus/inputs.hpp"
#include "src/tools/corpus/jsonl.hpp"

namespace holdfast::corpus {

/// A line, or an element of an array, that gives no document.
struct Broken {
  std::uint32_t range = 0;  ///< of the part
  std::uint64_t line = 0;   ///< from 1, counted from the range's first line; of an array the element
  std::string why;
};

struct ReadCounts {
  std::uint64_t documents = 0;  ///< given out
  std::uint64_t bytes = 0;      ///< of their texts
  std::uint64_t empty = 0, broken = 0;
  std::uint64_t repaired = 0;  ///< malformed parts of UTF-8
};

/// What a range gave.
struct RangeCounts {
  std::uint64_t lines = 0;  ///< or elements; 0 for texts
  std::uint64_t documents = 0;
  std::uint64_t left_out = 0;  ///< lines that are broken or have an empty text
};

/// Error (usage): a file of lines that gives no document. `first`: why its first line gives none.
Error no_document_in(const std::filesystem::path& file, std::uint64_t lines, const std::string& first);

/// Texts and conversations, not own tokens. `inputs`, `part` and `tally` must outlive it.
class Reader {
 public:
  static constexpr std::size_t max_listed = 20;

  Reader(const Settings& settings, const std::vector<Input>& inputs, const Part& part, Tally& tally);
  /// The next document that is not empty; a conversation's text is JSON with its
  /// "messages" and what "extra" its template sees. False at the end.
  /// Throws Error when a file cannot be read, and for a broken line when the settings are strict; unless the
  /// settings skip such files, also for a whole file of lines that gives no document, and for one of text
  /// that is none.
  bool next(Document& document);
  /// The document that next() gave last is broken after all: it is not counted among the documents any more.
  void reject(const Document& document, const std::string& why);

  const ReadCounts& counts() const { return counts_; }
  /// The first `max_listed`.
  const std::vector<Broken>& broken() const { return broken_; }
  const std::vector<RangeCounts>& ranges() const { return ranges_; }

 private:
  bool next_line(Document& document);
  void note(std::uint64_t line, std::uint64_t begin, const std::string& why);
  std::optional<std::string> text_of(const Line& line, std::string& text);
  void close_range();
  void refuse_binary(const std::filesystem::path& file);

  const Settings& settings_;
  const std::vector<Input>& inputs_;
  const Part& part_;
  Tally& tally_;
  std::size_t range_ = 0;  ///< the one being read
  std::unique_ptr<Records> open_;
  std::string first_why_;  ///< why the first line of the range gives no document
  JsonText json_;
  ReadCounts counts_;
  std::vector<Broken> broken_;
  std::vector<RangeCounts> ranges_;
};

}  // namespace holdfast::corpus
