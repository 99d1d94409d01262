// A preparation is up to five stages: the tokenizer is trained, the parts are scanned for duplicates, these
// are decided on, the parts become token files, and those are merged into the output. Scanning and making
// tokens go by parts, which threads share, or tasks of a job array; the others are done once. Each stage
// leaves its results in the work folder under the key of input and settings, and skips what is there, so that
// the same command goes on where an earlier one was ended.
//
// The merge looks at all results first: files of lines that gave no document, and sides of the held-out split
// with no text, are errors before anything is written. The output is put in its place last, behind the
// tokenizer's model and the dataset description, so that who sees it sees them.
#include "src/tools/corpus/prepare.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "src/base/error.hpp"
#include "src/tools/corpus/card.hpp"
#include "src/tools/corpus/encode.hpp"
#include "src/tools/corpus/fingerprints.hpp"
#include "src/tools/corpus/merge.hpp"
#include "src/tools/corpus/model_text.hpp"
#include "src/tools/corpus/part_result.hpp"

namespace holdfast::corpus {
namespace fs = std::filesystem;
namespace {

constexpr std::array<std::pair<Stage, const char*>, 5> names = {{{Stage::tokenizer, "tokenizer"},
                                                                 {Stage::scan, "scan"},
                                                                 {Stage::dedupe, "dedupe"},
                                                                 {Stage::tokens, "tokens"},
                                                                 {Stage::merge, "merge"}}};

/// The task's parts that are not done, and their bytes.
struct ToDo {
  std::vector<std::size_t> parts;
  std::uint64_t bytes = 0;
};
template <class IsDone>
ToDo to_do(const Plan& plan, const Task& task, IsDone is_done) {
  ToDo all;
  for (std::size_t part = task.number; part < plan.parts.size(); part += task.of) {
    if (is_done(plan, part)) continue;
    all.parts.push_back(part);
    for (const Range& range : plan.parts[part]) all.bytes += range.end - range.begin;
  }
  return all;
}

void need_tokenizer(const Plan& plan) {
  if (plan.tokenizer || is_tokens(plan.settings.format)) return;
  throw Error(Exit::runtime, "there is no tokenizer yet", plan.work.model().string() + " is missing",
              "Run the stage 'tokenizer' first?");
}

void train(Plan& plan, const Services& services) {
  if (plan.tokenizer) return;
  ModelText text(plan, services.watch);
  const std::string model = services.train_model(plan.settings.train_vocabulary, text.bytes(),
                                                 [&](std::string& piece) { return text.next(piece); });
  files::replace_atomically(plan.work.model(), model, 0644);
  plan.tokenizer = services.open_tokenizer(plan.work.model());
}

void scan(const Plan& plan, const Task& task, const Watch& watch) {
  const ToDo all = to_do(plan, task, is_scanned);
  share_out("scan", all.parts, plan.settings.workers, all.bytes, watch,
            [&](std::size_t part, Tally& tally) { scan_part(plan, part, tally); });
}

void make_tokens(const Plan& plan, const Task& task, const Watch& watch) {
  need_tokenizer(plan);
  const ToDo all = to_do(plan, task, is_done);
  std::optional<KeptDocuments> kept;
  if (plan.settings.dedupe != Dedupe::none && !all.parts.empty()) kept.emplace(plan);
  share_out("tokens", all.parts, plan.settings.workers, all.bytes, watch,
            [&](std::size_t part, Tally& tally) { encode_part(plan, part, kept ? &*kept : nullptr, tally); });
}

void check_not_empty(const Plan& plan, const Totals& totals, const std::vector<PartResult>& results) {
  SideCounts train, validation;
  for (const PartResult& result : results) {
    train.tokens += result.train.tokens;
    validation.tokens += result.validation.tokens;
  }
  if (train.tokens + validation.tokens == 0) {
    const std::string why = totals.broken.empty()
                                ? std::to_string(totals.read.empty) + " documents are empty"
                                : "line " + std::to_string(totals.broken.front().line) + " of " +
                                      totals.broken.front().path.string() + ": " + totals.broken.front().why;
    throw Error(Exit::usage, "no document is left", why,
                totals.broken.empty() ? "" : "Is this JSON Lines, and --text-key the right one?");
  }
  if (train.tokens == 0)
    throw Error(Exit::usage, "no text is left for training", "all documents are held out",
                "Use a smaller --val-fraction?");
  if (plan.settings.val_fraction > 0 && validation.tokens <= 1)
    throw Error(Exit::usage, "no text is left for validation",
                "a fraction of " + std::to_string(plan.settings.val_fraction) + " of " +
                    std::to_string(totals.read.bytes) + " bytes in " + std::to_string(totals.read.documents) +
                    " documents",
                "Use a larger --val-fraction?");
}

/// Files that were cut into ranges; of whole ones the reader has seen to it.
void check_files(const Plan& plan, const Totals& totals, const std::vector<PartResult>& results) {
  if (plan.settings.skip_bad_files || is_tokens(plan.settings.format)) return;
  std::vector<RangeCounts> files(plan.inputs.size());
  for (std::size_t part = 0; part < results.size(); ++part)
    for (std::size_t range = 0; range < plan.parts[part].size(); ++range) {
      RangeCounts& file = files[plan.parts[part][range].input];
      const RangeCounts& here = results[part].ranges.at(range);
      file.lines += here.lines;
      file.documents += here.documents;
      file.left_out += here.left_out;
    }
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].documents > 0 || files[i].left_out == 0) continue;
    const auto& path = plan.inputs[i].path;
    const auto first = std::find_if(totals.broken.begin(), totals.broken.end(),
                                    [&](const auto& line) { return line.path == path; });
    throw no_document_in(path, files[i].lines,
                         first == totals.broken.end()
                             ? "their texts are empty, or they are broken"
                             : "line " + std::to_string(first->line) + ": " + first->why);
  }
}

void put_in_place(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw system_error("cannot write " + to.string(), errno);
}

nlohmann::ordered_json merge_all(const Plan& plan, const Watch& watch) {
  need_tokenizer(plan);
  std::vector<PartResult> results;
  std::vector<fs::path> train_parts, validation_parts;
  for (std::size_t part = 0; part < plan.parts.size(); ++part) {
    results.push_back(load_result(plan, part));
    train_parts.push_back(plan.work.train(part));
    validation_parts.push_back(plan.work.validation(part));
  }
  const Settings& settings = plan.settings;
  const Removed removed = settings.dedupe == Dedupe::none ? Removed{} : KeptDocuments(plan).removed();
  const Totals totals = total(plan, results, removed);
  check_files(plan, totals, results);
  check_not_empty(plan, totals, results);

  MergeShape shape{plan.vocabulary(), plan.tokenizer_identity(), settings.pack, 0, settings.longer};
  if (plan.tokenizer) shape.pad = plan.tokenizer->document_end().value_or(0);
  std::optional<MergedFile> validation;
  if (settings.val_fraction > 0)
    validation = merge(validation_parts, plan.work.merged_validation(), shape, "merge", watch);
  const MergedFile train = merge(train_parts, plan.work.merged_train(), shape, "merge", watch);
  for (const MergedFile* const file :
       std::initializer_list<const MergedFile*>{&train, validation ? &*validation : nullptr})
    if (file != nullptr && file->header.count == 0)
      throw Error(Exit::usage, "no document is left",
                  std::to_string(file->longer) + " are longer than a row of " + std::to_string(settings.pack),
                  "Use a larger --pack, or --long truncate?");
  const auto card = card_of(plan, totals, train, validation);

  // All is written; what is left takes no room. Who sees the output sees the others.
  if (const fs::path model = model_path(settings); !model.empty()) {
    const bool own = settings.tokenizer.empty();
    files::replace_atomically(model, files::read_text(own ? plan.work.model() : settings.tokenizer), 0644);
  }
  files::replace_atomically(card_path(settings.output),
                            card.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", 0644);
  if (validation) put_in_place(plan.work.merged_validation(), validation_path(settings.output));
  put_in_place(plan.work.merged_train(), settings.output);
  files::sync_folder(settings.output.has_parent_path() ? settings.output.parent_path() : ".");
  if (!settings.keep_work) remove(plan.work);
  return card;
}

}  // namespace

const char* name_of(Stage stage) {
  for (const auto& [one, name] : names)
    if (one == stage) return name;
  return "?";
}

std::optional<Stage> stage_of(const std::string& name) {
  for (const auto& [stage, known] : names)
    if (known == name) return stage;
  return std::nullopt;
}

std::vector<Stage> stages_of(const Settings& settings) {
  std::vector<Stage> all;
  if (settings.train_vocabulary != 0) all.push_back(Stage::tokenizer);
  if (settings.dedupe != Dedupe::none) all.insert(all.end(), {Stage::scan, Stage::dedupe});
  all.insert(all.end(), {Stage::tokens, Stage::merge});
  return all;
}

nlohmann::ordered_json run_stage(Plan& plan, Stage stage, const Task& task, const Services& services) {
  expects(task.of > 0 && task.number < task.of, "a task is one of all tasks");
  create(plan.work);
  switch (stage) {
    case Stage::tokenizer:
      train(plan, services);
      break;
    case Stage::scan:
      scan(plan, task, services.watch);
      break;
    case Stage::dedupe:
      if (!are_duplicates_removed(plan)) remove_duplicates(plan);
      break;
    case Stage::tokens:
      make_tokens(plan, task, services.watch);
      break;
    case Stage::merge:
      return merge_all(plan, services.watch);
  }
  return {};
}

nlohmann::ordered_json prepare(const Settings& settings, const Services& services) {
  Plan plan = plan_of(settings, services);
  if (settings.check_space) check_space(plan, services);
  create(plan.work);
  const WorkLock lock(plan.work);
  nlohmann::ordered_json card;
  for (const Stage stage : stages_of(plan.settings)) card = run_stage(plan, stage, Task{}, services);
  return card;
}

}  // namespace holdfast::corpus
