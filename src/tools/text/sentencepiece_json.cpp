#include "src/tools/text/sentencepiece_json.hpp"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/utf8.hpp"
#include "src/data/tokenizer_files.hpp"
#include "src/tools/text/sentencepiece_facts.hpp"
#include "src/tools/text/sentencepiece_tokenizer.hpp"

namespace holdfast::text {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;
using sentencepiece::SentencePieceProcessor;

constexpr const char* space_piece = "\xE2\x96\x81";

/// What tokenizer.json can say as well.
bool expressible(const SentencePieceFacts& facts, const SentencePieceProcessor& model) {
  if (!facts.bpe || !facts.byte_fallback || facts.space_behind || facts.rewrites || facts.drops_spaces ||
      !facts.escapes_spaces || std::ranges::count(facts.user_defined, true) > 0)
    return false;
  for (int id = 0; id < model.GetPieceSize(); ++id) {
    const std::string& piece = model.IdToPiece(id);
    if (piece.empty() || !utf8::valid(piece) || piece.find(' ') != std::string::npos || model.IsUnused(id))
      return false;
  }
  return true;
}

bool is_text(const SentencePieceProcessor& model, int id) {
  return !model.IsControl(id) && !model.IsUnknown(id) && !model.IsByte(id);
}

/// The pairs of pieces that make a piece, best piece first. SentencePiece joins the pair whose piece has the
/// highest score.
Json merges_of(const SentencePieceProcessor& model) {
  std::unordered_map<std::string, int> ids;
  for (int id = 0; id < model.GetPieceSize(); ++id)
    if (is_text(model, id)) ids.emplace(model.IdToPiece(id), id);
  struct Merge {
    double score = 0;
    int piece = 0, left = 0, right = 0;
  };
  std::vector<Merge> merges;
  for (const auto& [piece, id] : ids)
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      const auto left = ids.find(piece.substr(0, cut)), right = ids.find(piece.substr(cut));
      if (left != ids.end() && right != ids.end())
        merges.push_back({model.GetScore(id), id, left->second, right->second});
    }
  std::ranges::sort(merges, [](const Merge& a, const Merge& b) {
    return std::tuple(-a.score, a.piece, a.left, a.right) < std::tuple(-b.score, b.piece, b.left, b.right);
  });
  Json out = Json::array();
  for (const Merge& merge : merges)
    out.push_back(model.IdToPiece(merge.left) + " " + model.IdToPiece(merge.right));
  return out;
}

Json replaces(const char* what, const char* by) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", by}};
}

/// Spaces are spelled as the model does, and one stands before a text if it wants it so.
Json normalizer_of(const SentencePieceFacts& facts) {
  const Json spelled = replaces(" ", space_piece);
  if (!facts.dummy_prefix) return spelled;
  return {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", space_piece}}, spelled}}};
}

Json decoder_of(const SentencePieceFacts& facts) {
  Json steps = {replaces(space_piece, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (facts.dummy_prefix) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", steps}};
}

/// The token that begins a text stands before it.
Json post_processor_of(const std::string& begin, int id) {
  const Json token = {{"SpecialToken", {{"id", begin}, {"type_id", 0}}}};
  const auto text = [](const char* name, int type) {
    return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  Json second = token;
  second["SpecialToken"]["type_id"] = 1;
  return {{"type", "TemplateProcessing"},
          {"single", {token, text("A", 0)}},
          {"pair", {token, text("A", 0), second, text("B", 1)}},
          {"special_tokens", {{begin, {{"id", begin}, {"ids", {id}}, {"tokens", {begin}}}}}}};
}

Json added_tokens_of(const SentencePieceProcessor& model) {
  Json out = Json::array();
  for (int id = 0; id < model.GetPieceSize(); ++id)
    if (model.IsControl(id) || model.IsUnknown(id))
      out.push_back({{"id", id},
                     {"content", model.IdToPiece(id)},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  return out;
}

}  // namespace

std::optional<HfTokenizerFiles> hf_files_of_sentencepiece(std::string_view bytes, const std::string& name,
                                                          std::optional<int> max_tokens) {
  const SentencePieceTokenizer ours(bytes, name);  // refuses what is none
  const auto facts = sentencepiece_facts(bytes);
  SentencePieceProcessor model;
  if (!facts || !model.LoadFromSerializedProto(bytes).ok() || !expressible(*facts, model))
    return std::nullopt;
  const std::string& unknown = model.IdToPiece(model.unk_id());
  HfTokenizerFiles out{{}, {}, ours.document_start(), ours.document_end()};

  Json vocabulary = Json::object();
  for (int id = 0; id < model.GetPieceSize(); ++id) vocabulary[model.IdToPiece(id)] = id;
  Json tokenizer = {{"version", "1.0"},
                    {"truncation", nullptr},
                    {"padding", nullptr},
                    {"added_tokens", added_tokens_of(model)},
                    {"normalizer", normalizer_of(*facts)},
                    {"pre_tokenizer", nullptr},
                    {"post_processor", nullptr},
                    {"decoder", decoder_of(*facts)},
                    {"model",
                     {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", unknown},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", true},
                      {"byte_fallback", true},
                      {"ignore_merges", false},
                      {"vocab", std::move(vocabulary)},
                      {"merges", merges_of(model)}}}};
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"unk_token", unknown},
                 {"clean_up_tokenization_spaces", false}};
  if (max_tokens) config["model_max_length"] = *max_tokens;
  if (out.begins) {
    const std::string& begin = model.IdToPiece(*out.begins);
    tokenizer["post_processor"] = post_processor_of(begin, *out.begins);
    config["bos_token"] = begin;
  }
  if (out.ends) config["eos_token"] = model.IdToPiece(*out.ends);
  out.tokenizer = tokenizer.dump(1) + "\n";
  out.config = config.dump(2) + "\n";
  return out;
}

std::optional<fs::path> find_own_model(const fs::path& path) {
  std::error_code ignored;
  const auto fits = [&](const fs::path& file) {
    return file.extension() == ".model" && file.filename() != "tokenizer.model" &&
           fs::is_regular_file(file, ignored);
  };
  if (!fs::is_directory(path, ignored)) return fits(path) ? std::optional(path) : std::nullopt;
  if (!data::tokenizer_files(path).empty()) return std::nullopt;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(path, ignored))
    if (fits(entry.path())) found.push_back(entry.path());
  return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

}  // namespace holdfast::text
