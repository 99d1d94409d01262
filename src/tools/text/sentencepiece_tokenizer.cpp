// A SentencePiece model as a Tokenizer. The library is asked for pieces and kinds, and for the ids of models
// that normalise or are no BPE. For models of Llama's kind SentencePieceBpe does the same faster, without a
// priority queue over the whole text: it gets the text with spaces for U+2581, and with the space before it
// that the model or the files beside it ask for.
//
// A text is first searched for added tokens: control pieces and what other files declare (beside.hpp).
// Special ones count where they lie in a range of the template's own words, others everywhere. What stands
// between two is encoded as a text of its own, and it depends on the rule for the first space whether one
// goes before it. Tokens that the model does not have get the numbers behind its pieces, in the order in
// which they are declared; where a file gives them another number, the tokenizer is refused.
#include "src/tools/text/sentencepiece_tokenizer.hpp"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/utf8.hpp"
#include "src/tools/text/json_text.hpp"
#include "src/tools/text/nfc.hpp"

namespace holdfast::text {
namespace {

using sentencepiece::SentencePieceProcessor;

constexpr std::string_view space_symbol = "\xE2\x96\x81";

[[noreturn]] void refuse(const std::string& name) {
  throw Error(Exit::usage, "cannot use tokenizer " + name, "it is not a SentencePiece model, or damaged",
              "Give a tokenizer.model or a tokenizer.json, or train one with --train-vocabulary?");
}

/// Before the library reads the model: it trusts rules that may be damaged.
SentencePieceFacts facts_of(std::string_view model, const std::string& name) {
  auto facts = sentencepiece_facts(model);
  if (!facts) refuse(name);
  return *std::move(facts);
}

std::unique_ptr<SentencePieceProcessor> load(std::string_view model, const std::string& name) {
  auto processor = std::make_unique<SentencePieceProcessor>();
  try {
    if (processor->LoadFromSerializedProto(model).ok() && processor->GetPieceSize() > 0) return processor;
  } catch (const std::exception&) {  // its tries throw where pieces have a NUL
  }
  refuse(name);
}

/// A model's pieces may be such that no text gets to its end.
void check(const sentencepiece::util::Status& status) {
  if (!status.ok())
    throw Error(Exit::usage, "the SentencePiece model cannot spell a text", status.ToString(),
                "Is its file damaged?");
}

/// `text` with a space for every U+2581, which is how pieces spell spaces, and one before it if `dummy`.
Normalized spaces_spelled(std::string_view text, bool dummy) {
  Normalized spaced;
  if (dummy) {
    spaced.text = " ";
    spaced.rewritten.push_back({0, 0, 0, 1});
  }
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t symbol = std::min(text.find(space_symbol, at), text.size());
    spaced.text.append(text, at, symbol - at);
    if (symbol == text.size()) break;
    at = symbol + space_symbol.size();
    spaced.rewritten.push_back({symbol, at, spaced.text.size(), spaced.text.size() + 1});
    spaced.text.push_back(' ');
  }
  return spaced;
}

/// "<0x0A>"
char byte_of(const std::string& piece) {
  expects(piece.size() == 6, "SentencePiece checked how its bytes are called");
  unsigned value = 0;
  std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  return static_cast<char>(value);
}

std::optional<Token> if_any(int id) { return id >= 0 ? std::optional<Token>(id) : std::nullopt; }

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string_view model, const std::string& name,
                                               const SentencePieceExtras& extras)
    : facts_(facts_of(model, name)),
      model_(load(model, name)),
      prefix_(extras.prefix),
      identity_(data::hash_bytes(model)) {
  for (int id = 0; id < model_->GetPieceSize(); ++id) {
    const std::string& piece = model_->IdToPiece(id);
    const Kind kind = model_->IsControl(id)   ? Kind::control
                      : model_->IsUnknown(id) ? Kind::unknown
                      : model_->IsByte(id)    ? Kind::byte
                                              : Kind::text;
    kinds_.push_back(kind);
    bytes_.push_back(kind == Kind::byte      ? std::string(1, byte_of(piece))
                     : kind == Kind::unknown ? model_->DecodeIds({id})
                     : kind == Kind::control ? piece
                                             : spaces_spelled(piece, false).text);
    if (kind == Kind::control && !piece.empty()) added_.add(piece, id, true);
  }
  bpe_ = fast_bpe();
  if (bpe_ == nullptr && prefix_ != PrefixSpace::by_model)
    throw Error(Exit::usage, "cannot use tokenizer " + name,
                "the files beside it ask for Llama's rule for the first space (\"legacy\", "
                "\"add_prefix_space\"), and "
                "it is not a model of Llama's kind (BPE with byte fallback that rewrites nothing)");
  add(extras.added, name);
  if (extras.begins) start_ = if_any(model_->bos_id());
  end_ = extras.eos.empty() ? std::nullopt : find(extras.eos);
  if (!end_) end_ = if_any(model_->eos_id());
}

/// The tokens that other files declare: pieces of the model, or the numbers behind them.
void SentencePieceTokenizer::add(const std::vector<DeclaredToken>& declared, const std::string& name) {
  for (const DeclaredToken& token : declared) {
    if (token.content.empty()) throw unsupported_beside(token.said_by, "an added token of 0 bytes");
    const auto known = find(token.content);
    const auto id = known.value_or(vocabulary());
    expect_id(token, id, known.has_value(), name);
    added_.add(token.content, id, token.special || (known && kinds_[as_size(id)] == Kind::control));
    parsed_everywhere_ |= !token.special;
    if (!known) {
      bytes_.push_back(token.content);
      kinds_.push_back(token.special ? Kind::control : Kind::added);
      names_.emplace(token.content, id);
    } else if (token.special && kinds_[as_size(id)] != Kind::unknown) {
      bytes_[as_size(id)] = token.content;
      kinds_[as_size(id)] = Kind::control;
    }
  }
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

/// For Llama's models and those trained here: BPE over the text as it is, but for the spelling of spaces.
std::unique_ptr<SentencePieceBpe> SentencePieceTokenizer::fast_bpe() const {
  if (!facts_.bpe || !facts_.byte_fallback || facts_.space_behind || facts_.rewrites || facts_.drops_spaces ||
      !facts_.escapes_spaces || facts_.user_defined.size() != kinds_.size())
    return nullptr;
  std::vector<SentencePieceBpe::Piece> pieces;
  std::array<Token, 256> bytes = {};
  for (Token id = 0; id < vocabulary(); ++id) {
    const auto index = as_size(id);
    const std::string& piece = model_->IdToPiece(id);
    const bool user_defined = facts_.user_defined[index];
    if (kinds_[index] == Kind::byte) bytes[static_cast<unsigned char>(bytes_[index].front())] = id;
    if (kinds_[index] != Kind::text) continue;
    // Spaces mean something else in a piece of the user, and unused pieces are taken apart again.
    const bool odd = piece.empty() || !utf8::valid(piece) || piece.find(' ') != std::string::npos;
    if (odd || model_->IsUnused(id) || (user_defined && bytes_[index] != piece)) return nullptr;
    pieces.push_back({bytes_[index], id, model_->GetScore(id), user_defined});
  }
  return std::make_unique<SentencePieceBpe>(pieces, bytes, vocabulary());
}

void SentencePieceTokenizer::encode(std::string_view text, std::vector<Token>& out, Specials specials) const {
  const std::pair<std::size_t, std::size_t> all = {0, text.size()};
  split(text, std::span(&all, specials == Specials::parsed ? 1 : 0), out, nullptr);
}

void SentencePieceTokenizer::encode_template(std::string_view text,
                                             std::span<const std::pair<std::size_t, std::size_t>> parsed,
                                             std::vector<Token>& out) const {
  split(text, parsed, out, nullptr);
}

void SentencePieceTokenizer::encode_template_at(std::string_view text,
                                                std::span<const std::pair<std::size_t, std::size_t>> parsed,
                                                std::vector<Token>& out,
                                                std::vector<std::size_t>& begins) const {
  split(text, parsed, out, &begins);
}

void SentencePieceTokenizer::split(std::string_view text,
                                   std::span<const std::pair<std::size_t, std::size_t>> parsed,
                                   std::vector<Token>& out, std::vector<std::size_t>* begins) const {
  expects(utf8::valid(text), "text is UTF-8");
  std::size_t done = 0;
  const bool sought = !parsed.empty() || parsed_everywhere_;
  while (const auto found =
             !sought ? std::nullopt : added_.next(text, done, [&](std::size_t first, std::size_t end) {
               return lies_in(parsed, first, end);
             })) {
    if (done < found->first) encode_part(text.substr(done, found->first - done), done, out, begins);
    out.push_back(found->id);
    if (begins != nullptr) begins->push_back(found->first);
    done = found->end;
  }
  if (done < text.size()) encode_part(text.substr(done), done, out, begins);
}

/// `text` begins at byte `base` of the whole text.
bool SentencePieceTokenizer::has_prefix(std::string_view text, std::size_t base) const {
  if (prefix_ == PrefixSpace::by_model) return facts_.dummy_prefix;
  return prefix_ == PrefixSpace::first && base == 0 && !text.starts_with(' ') &&
         !text.starts_with(space_symbol);
}

void SentencePieceTokenizer::encode_part(std::string_view text, std::size_t base, std::vector<Token>& out,
                                         std::vector<std::size_t>* begins) const {
  if (bpe_ == nullptr && begins == nullptr) {
    std::vector<int> ids;
    check(model_->Encode(text, &ids));
    out.insert(out.end(), ids.begin(), ids.end());
  } else if (bpe_ == nullptr) {
    sentencepiece::ImmutableSentencePieceText encoded;  // what its pieces point to
    check(model_->Encode(text, encoded.mutable_proto()));
    for (const auto& piece : encoded.pieces()) {
      out.push_back(static_cast<Token>(piece.id()));
      begins->push_back(base + piece.begin());
    }
  } else {
    Normalized spaced = spaces_spelled(text, has_prefix(text, base));
    const std::size_t before = begins != nullptr ? begins->size() : 0;
    bpe_->encode(spaced.text, out, begins);
    for (std::size_t i = before; begins != nullptr && i < begins->size(); ++i)
      (*begins)[i] = base + spaced.original((*begins)[i]);
  }
}

std::string SentencePieceTokenizer::decode(std::span<const Token> tokens, bool specials) const {
  std::string text;
  bool at_start = prefix_ == PrefixSpace::by_model ? facts_.dummy_prefix || facts_.drops_spaces
                                                   : prefix_ == PrefixSpace::first;
  for (const Token token : tokens) {
    expects(token >= 0 && token < vocabulary(), "tokens are in the vocabulary");
    const auto index = as_size(token);
    if (kinds_[index] == Kind::control) {
      if (specials) text += bytes_[index];
      continue;
    }
    const bool dummy = at_start && kinds_[index] == Kind::text && bytes_[index].starts_with(' ');
    text.append(bytes_[index], dummy ? 1 : 0);
    at_start = facts_.drops_spaces && dummy && bytes_[index].size() == 1;
  }
  return text;
}

std::optional<Token> SentencePieceTokenizer::find(std::string_view piece) const {
  if (const auto added = names_.find(piece); added != names_.end()) return added->second;
  const int id = model_->PieceToId(piece);
  if (id < 0 || id >= model_->GetPieceSize() || model_->IdToPiece(id) != piece) return std::nullopt;
  return id;
}

std::optional<Token> SentencePieceTokenizer::unknown() const { return if_any(model_->unk_id()); }

}  // namespace holdfast::text
