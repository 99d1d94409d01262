#pragma once
// The documents of a part, one after the other, and what was wrong with the others.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/tools/corpus/crew.hpp"
#include "src/tools/corpus/document.hpp"
#include "src/tools/corpus/inputs.hpp"
#include "src/tools/corpus/jsonl.hpp"

namespace holdfast::corpus {

/// A line that gives no document.
struct Broken {
  std::uint32_t range = 0;  ///< of the part
  std::uint64_t line = 0;   ///< from 1, counted from the range's first line
  std::string why;
};

struct ReadCounts {
  std::uint64_t documents = 0;  ///< given out
  std::uint64_t bytes = 0;      ///< of their texts
  std::uint64_t empty = 0, broken = 0;
  std::uint64_t repaired = 0;  ///< malformed parts of UTF-8
};

/// Texts and conversations, not own tokens. `inputs`, `part` and `tally` must outlive it.
class Reader {
 public:
  static constexpr std::size_t max_listed = 20;

  Reader(const Settings& settings, const std::vector<Input>& inputs, const Part& part, Tally& tally);
  /// The next document that is not empty; a conversation's text is JSON with its
  /// "messages" and what "extra" its template sees. False at the end.
  /// Throws Error when a file cannot be read, and for a broken line when the settings are strict.
  bool next(Document& document);
  /// The document that next() gave last is broken after all: it is not counted among the documents any more.
  void reject(const Document& document, const std::string& why);

  const ReadCounts& counts() const { return counts_; }
  /// The first `max_listed`.
  const std::vector<Broken>& broken() const { return broken_; }
  /// Of each range, 0 for texts.
  const std::vector<std::uint64_t>& lines() const { return lines_; }

 private:
  bool next_line(Document& document);
  void note(std::uint64_t line, std::uint64_t begin, const std::string& why);
  std::optional<std::string> text_of(const Line& line, std::string& text);

  const Settings& settings_;
  const std::vector<Input>& inputs_;
  const Part& part_;
  Tally& tally_;
  std::size_t range_ = 0;  ///< the one being read
  std::unique_ptr<Lines> open_;
  JsonText json_;
  ReadCounts counts_;
  std::vector<Broken> broken_;
  std::vector<std::uint64_t> lines_;
};

}  // namespace holdfast::corpus
