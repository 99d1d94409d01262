#pragma once
// `data prepare` on a terminal: the corpus library with its services, and what is said of the result.
#include <cstddef>
#include <string>

#include "src/tools/corpus/prepare.hpp"

namespace holdfast::tool {

struct PrepareOptions {
  corpus::Settings settings;
  std::string format = "auto", dedupe = "none", split = "auto", longer = "auto";  ///< as typed
  bool no_document_end = false, no_space_check = false;
  bool plan_json = false;   ///< print stages and parts, and do nothing
  std::string stage, task;  ///< one stage; "2/8": its third task of eight
};

/// Tokenizers, SentencePiece's training, disk space, progress on stderr, and Ctrl-C.
corpus::Services services();

/// Prints what was written on stdout, and what was wrong with the input on stderr.
void run_prepare(const PrepareOptions& options);

/// "2/8". Throws Error (usage).
corpus::Task task_of(const std::string& text);

}  // namespace holdfast::tool
