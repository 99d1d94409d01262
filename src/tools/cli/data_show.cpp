#include "src/tools/cli/data_show.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"
#include "src/data/token_file.hpp"
#include "src/tools/corpus/settings.hpp"

namespace holdfast::tool {
namespace fs = std::filesystem;
namespace {

using nlohmann::ordered_json;

/// The card that speaks of this file: its own, or that of the file beside which it was held out. Null when
/// there is none, or it is another file's.
ordered_json card_of(const fs::path& path, const data::TokenFile& file) {
  fs::path whole = path;
  if (path.stem().extension() == ".val")
    whole = path.parent_path() / path.stem().replace_extension(path.extension());
  for (const fs::path& candidate : {corpus::card_path(path), corpus::card_path(whole)}) {
    std::error_code error;
    if (!fs::is_regular_file(candidate, error)) continue;
    auto card = json_from<ordered_json>(files::read_text(candidate));
    for (const char* side : {"output", "validation"})
      if (card.is_object() && card.contains(side) &&
          typed<std::string>(card[side], "identity") == file.identity())
        return card;
  }
  return nullptr;
}

std::int64_t learned_in(const data::TokenFile& file) {
  constexpr std::int64_t each = 1 << 20;
  std::int64_t count = 0;
  for (std::int64_t at = 0; at < file.size(); at += each)
    count += std::ranges::count(file.learned(at, std::min(each, file.size() - at)), true);
  return count;
}

/// What the card says, in lines; numbers that it does not have are left out.
void print_card(const ordered_json& card) {
  const auto list = [](const ordered_json& counts) {
    std::string text;
    for (const auto& [name, value] : counts.items())
      text += (text.empty() ? "" : ", ") + value.dump() + " " + name;
    return text;
  };
  const auto line = [&](const char* title, const char* name) {
    if (card.contains(name))
      std::cout << fmt::format("{:<17}{}\n", title,
                               card[name].is_object() ? list(card[name]) : card[name].dump());
  };
  line("read", "read");
  line("duplicates", "removed");
  line("kept", "kept");
  line("unknown tokens", "unknown");
  if (card.contains("settings")) std::cout << fmt::format("{:<17}{}\n", "settings", card["settings"].dump());
  if (!card.contains("inputs") || !card["inputs"].is_array()) return;
  constexpr std::size_t max_shown = 20;
  const auto& inputs = card["inputs"];
  std::cout << fmt::format(
      "{:<17}{} files{}\n", "inputs", inputs.size(),
      inputs.size() > max_shown ? fmt::format(", of which the first {}:", max_shown) : "");
  for (std::size_t i = 0; i < std::min(inputs.size(), max_shown); ++i)
    std::cout << fmt::format("  {}  {}  {}\n", typed<std::string>(inputs[i], "xxh3_128").value_or(""),
                             typed<std::uint64_t>(inputs[i], "bytes").value_or(0),
                             typed<std::string>(inputs[i], "path").value_or(""));
}

}  // namespace

void run_show(const ShowOptions& options) {
  const data::TokenFile file = data::TokenFile::open(options.file, 0);
  if (options.verify) file.verify();
  const data::TokenHeader& header = file.header();
  const bool known = header.tokenizer != data::Hash128{};
  const ordered_json card = card_of(options.file, file);
  const std::int64_t learned = header.masked ? learned_in(file) : file.size();
  if (options.json) {
    const ordered_json report = {{"schema_version", 1},
                                 {"tokens", file.size()},
                                 {"vocabulary", file.vocabulary()},
                                 {"bytes_per_token", header.bytes_per_token},
                                 {"identity", file.identity()},
                                 {"tokenizer", known ? ordered_json(data::hex(header.tokenizer)) : nullptr},
                                 {"documents", file.documents()},
                                 {"row", file.row()},
                                 {"learned", learned},
                                 {"verified", options.verify},
                                 {"card", card}};
    std::cout << json_text(report, 2) << "\n";
    return;
  }
  const auto line = [](const char* title, const auto& value) {
    std::cout << fmt::format("{:<17}{}\n", title, value);
  };
  line("tokens", file.size());
  line("vocabulary", file.vocabulary());
  line("bytes per token", header.bytes_per_token);
  line("identity", file.identity() + (options.verify ? " (verified)" : ""));
  line("tokenizer", known ? data::hex(header.tokenizer) : "unknown");
  line("documents", file.documents());
  if (file.row() > 0) line("rows", fmt::format("{} of {}", file.size() / file.row(), file.row()));
  if (learned != file.size()) line("learned", fmt::format("{} tokens", learned));
  if (!card.is_null()) print_card(card);
}

}  // namespace holdfast::tool
