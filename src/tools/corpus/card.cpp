#include "src/tools/corpus/card.hpp"

#include <algorithm>

namespace holdfast::corpus {
namespace {

using nlohmann::ordered_json;

ordered_json settings_of(const Settings& s) {
  ordered_json out = {{"format", name_of(s.format)}};
  if (s.format == Format::automatic || s.format == Format::jsonl) out["text_key"] = s.text_key;
  if (s.format == Format::chat) out["chat"] = s.chat.empty() ? "tokenizer" : s.chat.string();
  if (s.train_vocabulary > 0) out["train_vocabulary"] = s.train_vocabulary;
  if (s.document_start) out["document_start"] = *s.document_start;
  if (!is_tokens(s.format)) out["document_end"] = s.document_end;
  out["dedupe"] = name_of(s.dedupe);
  if (s.dedupe == Dedupe::near) out["similarity"] = s.similarity;
  out["val_fraction"] = s.val_fraction;
  if (s.val_fraction > 0) out["split"] = name_of(s.split);
  out["pack"] = s.pack;
  if (s.pack > 0) out["long"] = name_of(s.longer);
  out["strict"] = s.strict;
  out["skip_bad_files"] = s.skip_bad_files;
  return out;
}

ordered_json file_card(const std::filesystem::path& path, const MergedFile& file) {
  const data::TokenHeader& header = file.header;
  ordered_json out = {{"path", path.string()},
                      {"documents", file.documents},
                      {"tokens", static_cast<std::int64_t>(header.count) - file.padding},
                      {"identity", data::hex(header.content)}};
  if (header.row == 0) return out;
  const std::uint64_t rows = header.count / header.row;
  out["row"] = header.row;
  out["rows"] = rows;
  out["longer"] = file.longer;
  out["padding"] = file.padding;
  out["fill"] = rows == 0 ? 1.0 : 1 - static_cast<double>(file.padding) / static_cast<double>(header.count);
  return out;
}

}  // namespace

Totals total(const Plan& plan, const std::vector<PartResult>& results, Removed removed) {
  Totals all;
  all.removed = removed;
  all.hashes.resize(plan.inputs.size());
  std::uint64_t lines_before = 0;  // of the file that the part before ended in
  std::uint32_t file = UINT32_MAX;
  for (std::size_t part = 0; part < results.size(); ++part) {
    const PartResult& result = results[part];
    all.read.documents += result.read.documents;
    all.read.bytes += result.read.bytes;
    all.read.empty += result.read.empty;
    all.read.broken += result.read.broken;
    all.read.repaired += result.read.repaired;
    all.unknown += result.unknown;
    all.rewritten += result.rewritten;
    for (const auto& [input, hash] : result.hashes) all.hashes.at(input) = hash;
    for (std::uint32_t range = 0; range < plan.parts[part].size(); ++range) {
      const std::uint32_t input = plan.parts[part][range].input;
      if (input != file) lines_before = 0;
      file = input;
      for (const Broken& line : result.broken)
        if (line.range == range && all.broken.size() < Reader::max_listed)
          all.broken.push_back({plan.inputs[input].path, lines_before + line.line, line.why});
      lines_before += result.ranges.at(range).lines;
    }
  }
  return all;
}

ordered_json card_of(const Plan& plan, const Totals& totals, const MergedFile& train,
                     const std::optional<MergedFile>& validation) {
  const bool texts = !is_tokens(plan.settings.format);
  const std::int64_t documents = static_cast<std::int64_t>(totals.read.documents);
  ordered_json card = {
      {"schema_version", 1}, {"holdfast", HOLDFAST_VERSION}, {"settings", settings_of(plan.settings)}};
  card["tokenizer"] = nullptr;
  if (plan.tokenizer) {
    const auto path = plan.settings.tokenizer.empty() ? model_path(plan.settings) : plan.settings.tokenizer;
    card["tokenizer"] = {{"path", path.string()}, {"identity", data::hex(plan.tokenizer_identity())}};
  }
  card["vocabulary"] = plan.vocabulary();
  card["read"] = {{"bytes", totals.read.bytes}, {"documents", documents}, {"empty", totals.read.empty}};
  if (texts) {
    card["read"]["broken"] = totals.read.broken;
    card["read"]["repaired"] = totals.read.repaired;
  }
  card["removed"] = {{"exact", totals.removed.exact}, {"near", totals.removed.near}};
  card["kept"] = documents - totals.removed.exact - totals.removed.near;
  if (texts) card["unknown"] = totals.unknown;
  if (plan.settings.format == Format::chat) card["rewritten_turns"] = totals.rewritten;
  card["output"] = file_card(plan.settings.output, train);
  if (validation) card["validation"] = file_card(validation_path(plan.settings.output), *validation);
  card["broken_lines"] = ordered_json::array();
  for (const auto& line : totals.broken)
    card["broken_lines"].push_back({{"path", line.path.string()}, {"line", line.line}, {"why", line.why}});
  card["left_out_files"] = ordered_json::array();
  for (const auto& path : plan.left_out) card["left_out_files"].push_back(path.string());
  card["inputs"] = ordered_json::array();
  for (std::size_t i = 0; i < plan.inputs.size(); ++i)
    card["inputs"].push_back({{"path", plan.inputs[i].path.string()},
                              {"bytes", plan.inputs[i].bytes},
                              {"xxh3_128", totals.hashes[i]}});
  return card;
}

}  // namespace holdfast::corpus
