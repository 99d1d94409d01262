#pragma once
// The text that a tokenizer is trained on: all documents but those that are held out, in short pieces.
#include <string>
#include <string_view>

#include "src/tools/corpus/plan.hpp"
#include "src/tools/corpus/reader.hpp"
#include "src/tools/corpus/text_documents.hpp"

namespace holdfast::corpus {

class ModelText {
 public:
  ModelText(const Plan& plan, const Watch& watch);
  /// About as many as there will be; of files as they are on the disk.
  std::uint64_t bytes() const { return bytes_; }
  /// The next line, or part of a long line; false at the end.
  bool next(std::string& piece);

 private:
  bool next_document();

  const Plan& plan_;
  const Watch& watch_;
  std::uint64_t bytes_;
  Tally tally_;
  std::size_t part_ = 0;
  std::unique_ptr<Reader> reader_;
  Document document_;
  Pieces pieces_{std::string_view()};
};

}  // namespace holdfast::corpus
