#pragma once
// `data prepare`: from files of text or tokens to a token file, by stages. A stage's results are in the work
// folder, so that stages may run in different processes and on different machines, and what is done stays
// done. The same input and settings give the same bytes, however the work was shared out.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/tools/corpus/plan.hpp"

namespace holdfast::corpus {

enum class Stage {
  tokenizer,  ///< train a SentencePiece model
  scan,       ///< fingerprints of documents, part by part
  dedupe,     ///< which documents are kept
  tokens,     ///< token files, part by part
  merge,      ///< the output, from all parts; removes the work folder
};
const char* name_of(Stage stage);
/// Nothing for another name.
std::optional<Stage> stage_of(const std::string& name);
/// Done part by part, by as many processes as one likes; the others by one.
inline bool by_parts(Stage stage) { return stage == Stage::scan || stage == Stage::tokens; }
/// What these settings need, in order.
std::vector<Stage> stages_of(const Settings& settings);

/// A task's share of a stage: parts `number`, `number` + `of`, ...
struct Task {
  std::size_t number = 0, of = 1;
};

/// Does what is not done yet of a stage; those before it are done. The merge returns the card. Errors: of the
/// input (usage), of disks (runtime); results that are whole stay.
nlohmann::ordered_json run_stage(Plan& plan, Stage stage, const Task& task, const Services& services);

/// All stages in this process; the card.
nlohmann::ordered_json prepare(const Settings& settings, const Services& services);

}  // namespace holdfast::corpus
