#pragma once
// The token files of all parts made into one: one after the other, or packed into rows.
#include <filesystem>
#include <functional>
#include <vector>

#include "src/data/token_file.hpp"
#include "src/tools/corpus/crew.hpp"
#include "src/tools/corpus/plan.hpp"

namespace holdfast::corpus {

struct MergedFile {
  data::TokenHeader header;
  std::int64_t documents = 0;  ///< those of the padding not counted
  std::int64_t padding = 0;    ///< tokens
  std::int64_t longer = 0;     ///< documents that are longer than a row, whatever became of them
};

/// What every token file needs to know, and how long its rows are (0: none).
struct MergeShape {
  std::int64_t vocabulary = 0;
  data::Hash128 tokenizer = {};
  std::int64_t row = 0;
  std::int32_t pad = 0;  ///< fills up rows, and is never learned
  Long longer = Long::cut;
};

/// Whole documents of `parts`, in their order, into `to`; what becomes of those that are longer than a row
/// says the shape. One that is truncated to a begin of which nothing is learned is dropped. What fills up a
/// row is a document of its own. `watch` sees it as the stage `name`.
MergedFile merge(const std::vector<std::filesystem::path>& parts, const std::filesystem::path& to,
                 const MergeShape& shape, const std::string& name, const Watch& watch);

}  // namespace holdfast::corpus
