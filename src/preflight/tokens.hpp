#pragma once
// What makes token files unfit for a run.
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/data/token_file.hpp"

namespace holdfast::preflight {

/// What is said of a job without any: Error (usage).
Error no_tokens();

/// Opens `path` for samples of `sequence` tokens, of a model that knows `vocabulary` tokens. Throws Error
/// (usage): it is no token file, too short, packed for another sequence, or has more tokens than the model.
data::TokenFile open_for(const std::string& path, int sequence, const std::string& model,
                         std::int64_t vocabulary);

struct NamedFile {
  std::string path;
  const data::TokenFile* file;
};
/// A token means something to one tokenizer only. Throws Error (usage) for files that were made by another
/// than the one beside `weights` (a folder, or a file in it; "": none), or than the file before them.
void require_one_tokenizer(const std::vector<NamedFile>& files, const std::string& weights);

}  // namespace holdfast::preflight
