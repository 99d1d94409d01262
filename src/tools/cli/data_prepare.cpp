#include "src/tools/cli/data_prepare.hpp"

#include <fmt/core.h>

#include <charconv>
#include <iostream>
#include <memory>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/strict_json.hpp"
#include "src/base/units.hpp"
#include "src/tools/cli/interrupt.hpp"
#include "src/tools/cli/progress.hpp"
#include "src/tools/text/train_sentencepiece.hpp"

namespace holdfast::tool {
namespace {

using nlohmann::ordered_json;

/// "tokens: 3.40 MiB of 12.00 MiB, 25.10 MiB/s, 1.6 min left", each stage from its own begin.
class StageProgress {
 public:
  void show(const std::string& stage, std::uint64_t done, std::uint64_t all) {
    if (stage != stage_) {
      stage_ = stage;
      begin_ = Clock::now();
    }
    progress_.show([&] {
      const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
      const double rate = static_cast<double>(done) / seconds;
      std::string line =
          fmt::format("{}: {} of {}, {}/s", stage, size_text(done), size_text(all), size_text(rate));
      if (done > 0) line += ", " + duration_text(static_cast<double>(all - done) / rate) + " left";
      return line;
    });
  }

 private:
  Progress progress_;
  std::string stage_;
  Clock::time_point begin_;
};

template <class Choice>
Choice chosen(const char* option, const std::string& typed, std::initializer_list<Choice> choices) {
  std::string names;
  for (const Choice choice : choices) {
    if (corpus::name_of(choice) == typed) return choice;
    names += (names.empty() ? "" : ", ") + std::string(corpus::name_of(choice));
  }
  throw Error(Exit::usage, fmt::format("{} cannot be '{}'", option, typed), "it is one of " + names);
}

corpus::Settings settings_of(const PrepareOptions& options) {
  using corpus::Dedupe, corpus::Format, corpus::Long, corpus::Split;
  corpus::Settings settings = options.settings;
  settings.format = chosen("--format", options.format,
                           {Format::automatic, Format::text, Format::jsonl, Format::chat, Format::u16,
                            Format::u32, Format::megatron});
  if (settings.format == Format::automatic && !settings.chat.empty()) settings.format = Format::chat;
  settings.dedupe = chosen("--dedupe", options.dedupe, {Dedupe::none, Dedupe::exact, Dedupe::near});
  settings.split = chosen("--split", options.split, {Split::automatic, Split::documents, Split::tail});
  settings.longer =
      chosen("--long", options.longer, {Long::automatic, Long::drop, Long::truncate, Long::cut});
  settings.document_end = !options.no_document_end;
  settings.check_space = !options.no_space_check;
  return settings;
}

void print_plan(const corpus::Plan& plan) {
  ordered_json stages = ordered_json::array();
  for (const corpus::Stage stage : corpus::stages_of(plan.settings))
    stages.push_back({{"name", corpus::name_of(stage)}, {"by_parts", corpus::by_parts(stage)}});
  const ordered_json report = {{"schema_version", 1},
                               {"output", std::filesystem::absolute(plan.settings.output).string()},
                               {"work", std::filesystem::absolute(plan.work.path.parent_path()).string()},
                               {"parts", plan.parts.size()},
                               {"stages", stages}};
  std::cout << json_text(report, 2) << "\n";
}

void warn_of_long(const ordered_json& settings, const ordered_json& file) {
  const auto longer = file.value("longer", std::int64_t{0});
  if (longer == 0) return;
  const std::string what = settings["long"] == "drop" ? "were left out"
                           : settings["long"] == "truncate"
                               ? "lost their end, or were left out if nothing is learned of their begin"
                               : "were cut into rows";
  log::warn("{}: {} documents are longer than a row of {} tokens, and {} (--long drop, truncate or cut)",
            file["path"].get<std::string>(), longer, settings["pack"].get<std::int64_t>(), what);
}

void warn_of_input(const ordered_json& card) {
  const auto count = [&](const char* name) {
    return card["read"].contains(name) ? card["read"][name].get<std::uint64_t>() : 0;
  };
  if (const auto broken = count("broken"); broken > 0) {
    const auto& lines = card["broken_lines"];
    log::warn("{} broken lines were left out{}", broken,
              lines.size() < broken ? fmt::format("; the first {}:", lines.size()) : ":");
    for (const auto& line : lines)
      log::warn("{}:{}: {}", line["path"].get<std::string>(), line["line"].get<std::uint64_t>(),
                line["why"].get<std::string>());
  }
  if (const auto empty = count("empty"); empty > 0) log::warn("{} empty documents were left out", empty);
  if (const auto repaired = count("repaired"); repaired > 0)
    log::warn("{} malformed UTF-8 sequences became U+FFFD (is this text in another encoding?)", repaired);
  if (const auto turns = card.value("rewritten_turns", std::int64_t{0}); turns > 0)
    log::warn("{} turns are not learned: the chat template changes them as the conversation goes on", turns);
  for (const char* side : {"output", "validation"})
    if (card.contains(side)) warn_of_long(card["settings"], card[side]);
  if (card["settings"]["format"] == "chat" && card["settings"]["pack"] == 0)
    log::warn(
        "conversations follow each other, and are cut where a sequence of the training ends: what is left of "
        "one is "
        "learned without its begin. --pack N keeps them whole, with N as train.sequence");
  if (const auto& files = card["left_out_files"]; !files.empty())
    log::info("{} files that describe the data were left out: {}{}", files.size(),
              files[0].get<std::string>(), files.size() > 1 ? ", ..." : "");
  if (card.contains("unknown") && card["unknown"] > 0)
    log::warn("{} tokens are unknown ones: this tokenizer cannot spell all of the text",
              card["unknown"].get<std::int64_t>());
}

void print_file(const ordered_json& file, const std::string& more) {
  std::cout << fmt::format("{}: {} tokens, {}identity {}\n", file["path"].get<std::string>(),
                           file["tokens"].get<std::int64_t>(), more, file["identity"].get<std::string>());
}

void report(const corpus::Settings& settings, const ordered_json& card) {
  warn_of_input(card);
  const auto& removed = card["removed"];
  if (settings.dedupe != corpus::Dedupe::none)
    log::info("{} equal and {} nearly equal documents were left out", removed["exact"].get<std::int64_t>(),
              removed["near"].get<std::int64_t>());
  print_file(card["output"], fmt::format("vocabulary {}, ", card["vocabulary"].get<std::int64_t>()));
  if (card.contains("validation")) print_file(card["validation"], "");
  if (const auto model = corpus::model_path(settings); !model.empty())
    std::cout << fmt::format("{}: tokenizer\n", model.string());
  std::cout << fmt::format("{}: card\n", corpus::card_path(settings.output).string());
}

}  // namespace

corpus::Services services() {
  corpus::Services around;
  around.open_tokenizer = text::open_tokenizer;
  around.train_model = text::train_sentencepiece;
  around.free_bytes = corpus::free_bytes_beside;
  const auto progress = std::make_shared<StageProgress>();
  around.watch.progress = [progress](const std::string& stage, std::uint64_t done, std::uint64_t all) {
    progress->show(stage, done, all);
  };
  around.watch.check = stop_if_interrupted;
  return around;
}

corpus::Task task_of(const std::string& text) {
  corpus::Task task;
  const char* end = text.data() + text.size();
  const auto number = std::from_chars(text.data(), end, task.number);
  const bool slash = number.ec == std::errc() && number.ptr != end && *number.ptr == '/';
  const auto of = slash ? std::from_chars(number.ptr + 1, end, task.of) : number;
  if (!slash || of.ec != std::errc() || of.ptr != end || task.number >= task.of)
    throw Error(Exit::usage, "--task cannot be '" + text + "'",
                "it is a number and how many there are: 0/8 to 7/8");
  return task;
}

void run_prepare(const PrepareOptions& options) {
  const corpus::Settings settings = settings_of(options);
  note_interrupts();
  ordered_json card;
  {
    const corpus::Services around = services();
    if (options.stage.empty() && !options.plan_json) {
      card = corpus::prepare(settings, around);
    } else {
      corpus::Plan plan = corpus::plan_of(settings, around);
      if (options.plan_json) {
        if (settings.check_space) corpus::check_space(plan, around);
        return print_plan(plan);
      }
      const auto stage = corpus::stage_of(options.stage);
      if (!stage) throw Error(Exit::usage, "there is no stage '" + options.stage + "'");
      card = corpus::run_stage(plan, *stage, options.task.empty() ? corpus::Task{} : task_of(options.task),
                               around);
    }
  }
  if (!card.is_null()) report(settings, card);
}

}  // namespace holdfast::tool
