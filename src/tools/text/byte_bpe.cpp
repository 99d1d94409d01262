// An Encoding takes one text through these steps. split() finds the added tokens that count in the raw text.
// What lies between them is normalised (NFC), and split() finds those that count in normalised text. The rest
// gets a space before it where the model says so, and cut() takes it through the steps of the pre-tokenizer,
// one pattern after the other. What comes out is a word: its tokens come from the WordCache, or from merge(),
// which begins with a token for each byte unless the model takes whole words from its vocabulary.
//
// A special token counts only where its text lies in a parsed range. With encode_template_at(), each token
// also gets the byte of the original text at which it begins; put() calculates that back through the space
// and NFC. Patterns share a number of steps that grows with the text, and an Error ends one that needs more.
//
// Calls may come from several threads: each borrows a Scratch, and the rest does not change after
// construction.
#include "src/tools/text/byte_bpe.hpp"

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/utf8.hpp"
#include "src/tools/text/byte_alphabet.hpp"
#include "src/tools/text/nfc.hpp"
#include "src/tools/text/small_file.hpp"
#include "src/tools/text/word_cache.hpp"

namespace holdfast::text {
namespace {

using Ranges = std::span<const std::pair<std::size_t, std::size_t>>;

/// What patterns may try in vain: published ones stay below a few steps per byte.
std::uint64_t steps_for(std::size_t bytes) { return 1'000'000 + 1000 * static_cast<std::uint64_t>(bytes); }

}  // namespace

/// What one call works with, and the next one again.
struct ByteBpe::Scratch {
  explicit Scratch(const MergeTable& merges) : merger(merges) {}
  WordCache cache;
  WordMerger merger;
  std::vector<Token> word;
  std::string key;  ///< of a look-up in the vocabulary
};

/// One text on its way to tokens.
class ByteBpe::Encoding {
 public:
  Encoding(const ByteBpe& bpe, Scratch& scratch, std::string_view text, Ranges parsed,
           std::vector<Token>& out, std::vector<std::size_t>* begins)
      : bpe_(bpe),
        scratch_(scratch),
        original_(text),
        parsed_(parsed),
        steps_(steps_for(text.size())),
        out_(out),
        begins_(begins) {}

  void whole() {
    split(
        original_, bpe_.raw_,
        [&](std::size_t first, std::size_t end) { return lies_in(parsed_, first, end); },
        [&](std::size_t first, std::size_t end) { normalize(first, end); });
  }

 private:
  /// Gives the added tokens of `text` and hands on what lies between them.
  template <class Permitted, class Between>
  void split(std::string_view text, const AddedTokens& added, const Permitted& permitted,
             const Between& between) {
    std::size_t done = 0;
    while (!added.empty()) {
      const auto found = added.next(text, done, permitted);
      if (!found) break;
      if (done < found->first) between(done, found->first);
      text_ = text;
      put(found->id, found->first);
      done = found->end;
    }
    if (done < text.size()) between(done, text.size());
  }

  void normalize(std::size_t first, std::size_t end) {
    const std::string_view raw = original_.substr(first, end - first);
    base_ = first;
    const auto changed = bpe_.model_.nfc ? nfc(raw) : std::nullopt;
    normalized_ = changed ? &*changed : nullptr;
    const std::string_view text = changed ? std::string_view(changed->text) : raw;
    split(
        text, bpe_.normalized_,
        [&](std::size_t from, std::size_t to) { return lies_in(parsed_, original(from), original(to)); },
        [&](std::size_t from, std::size_t to) { words_of(text, from, to); });
    normalized_ = nullptr;
    base_ = 0;
  }

  void words_of(std::string_view text, std::size_t first, std::size_t end) {
    text_ = text;
    const std::string_view piece = text.substr(first, end - first);
    if (bpe_.model_.prefix_space && piece.front() != ' ') {
      const std::string prefixed = " " + std::string(piece);
      text_ = prefixed;
      prefixed_at_ = first;
      cut(0, text_);
      prefixed_at_.reset();
      return;
    }
    cut(0, piece);
  }

  /// Step `step` of the pre-tokenizer, and those behind it.
  void cut(std::size_t step, std::string_view piece) {
    if (step == bpe_.model_.cuts.size()) {
      word(piece);
      return;
    }
    const Cut& now = bpe_.model_.cuts[step];
    std::size_t kept = 0;  // what lies before it has been handed on
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t end = now.pattern.match(piece, at, steps_);
      if (end == Pattern::none) {
        at += utf8::character_bytes(piece[at]);
        continue;
      }
      if (kept < at && now.keep_others) cut(step + 1, piece.substr(kept, at - kept));
      if (now.keep_matches) cut(step + 1, piece.substr(at, end - at));
      at = kept = end;
    }
    if (kept < piece.size() && now.keep_others) cut(step + 1, piece.substr(kept));
  }

  void word(std::string_view bytes) {
    if (bytes.size() > WordCache::longest) {
      merge(bytes);
      put_word(scratch_.word, bytes);
      return;
    }
    const WordCache::Key key = WordCache::key_of(bytes);
    const std::span<const Token> known = scratch_.cache.find(key);
    if (!known.empty()) {
      put_word(known, bytes);
      return;
    }
    merge(bytes);
    scratch_.cache.keep(key, scratch_.word);
    put_word(scratch_.word, bytes);
  }

  void merge(std::string_view bytes) {
    scratch_.word.clear();
    if (bpe_.model_.ignore_merges) {
      scratch_.key = bytes;
      if (const auto whole = bpe_.model_.words.find(scratch_.key); whole != bpe_.model_.words.end()) {
        scratch_.word.push_back(whole->second);
        return;
      }
    }
    for (const char byte : bytes)
      scratch_.word.push_back(bpe_.model_.byte_tokens[static_cast<unsigned char>(byte)]);
    scratch_.merger.merge(scratch_.word);
  }

  void put_word(std::span<const Token> tokens, std::string_view bytes) {
    if (begins_ == nullptr) {
      out_.insert(out_.end(), tokens.begin(), tokens.end());
      return;
    }
    auto at = as_size(bytes.data() - text_.data());
    for (const Token token : tokens) {
      put(token, at);
      at += bpe_.model_.bytes[token].size();
    }
  }

  /// `at`: byte of text_.
  void put(Token token, std::size_t at) {
    out_.push_back(token);
    if (begins_ == nullptr) return;
    if (prefixed_at_) at = *prefixed_at_ + (at > 0 ? at - 1 : 0);
    begins_->push_back(original(at));
  }
  /// Byte `at` of the normalised text between two added tokens, in the original.
  std::size_t original(std::size_t at) const {
    return base_ + (normalized_ != nullptr ? normalized_->original(at) : at);
  }

  const ByteBpe& bpe_;
  Scratch& scratch_;
  std::string_view original_;
  Ranges parsed_;
  std::uint64_t steps_;
  std::vector<Token>& out_;
  std::vector<std::size_t>* begins_;
  std::string_view text_;  ///< what words are parts of
  std::size_t base_ = 0;   ///< of the normalised text, in the original
  const Normalized* normalized_ = nullptr;
  std::optional<std::size_t> prefixed_at_;  ///< text_ is a space and the text from this byte on
};

ByteBpe::ByteBpe(ByteBpeModel model, const DocumentTokens& documents, const data::Hash128& identity)
    : model_(std::move(model)), merges_(model_.merges), special_(model_.bytes.size()), identity_(identity) {
  model_.merges = {};
  for (const AddedToken& token : model_.added) {
    special_[token.id] = token.special;
    if (!token.normalized) {
      raw_.add(token.content, token.id, token.special);
      continue;
    }
    const auto changed = model_.nfc ? nfc(token.content) : std::nullopt;
    normalized_.add(changed ? changed->text : token.content, token.id, token.special);
  }
  const auto first_known = [&](const std::vector<std::string>& names) -> std::optional<Token> {
    for (const std::string& name : names) {
      if (const auto token = find(name)) return token;
    }
    return std::nullopt;
  };
  start_ = first_known(documents.start);
  end_ = first_known(documents.end);
}

ByteBpe::~ByteBpe() = default;

void ByteBpe::encode(std::string_view text, std::vector<Token>& out, Specials specials) const {
  const std::pair<std::size_t, std::size_t> all = {0, text.size()};
  encode_template(text, Ranges(&all, specials == Specials::parsed ? 1 : 0), out);
}

void ByteBpe::encode_template(std::string_view text, Ranges parsed, std::vector<Token>& out) const {
  expects(utf8::valid(text), "text is UTF-8");
  const auto scratch = scratch_.borrow([this] { return std::make_unique<Scratch>(merges_); });
  Encoding(*this, *scratch, text, parsed, out, nullptr).whole();
}

void ByteBpe::encode_template_at(std::string_view text, Ranges parsed, std::vector<Token>& out,
                                 std::vector<std::size_t>& begins) const {
  expects(utf8::valid(text), "text is UTF-8");
  const auto scratch = scratch_.borrow([this] { return std::make_unique<Scratch>(merges_); });
  Encoding(*this, *scratch, text, parsed, out, &begins).whole();
}

std::string ByteBpe::decode(std::span<const Token> tokens, bool specials) const {
  std::string bytes;
  for (const Token token : tokens) {
    expects(token >= 0 && token < vocabulary(), "tokens are in the vocabulary");
    const auto index = as_size(token);
    if (specials || !special_[index]) bytes += model_.bytes[index];
  }
  return bytes;
}

std::optional<Token> ByteBpe::find(std::string_view piece) const {
  for (const AddedToken& token : model_.added) {
    if (token.content == piece) return token.id;
  }
  if (!utf8::valid(piece)) return std::nullopt;
  const auto bytes = unspelled(piece);
  const auto& names = bytes ? model_.words : model_.odd;
  const auto found = names.find(bytes ? *bytes : std::string(piece));
  return found != names.end() ? std::optional(found->second) : std::nullopt;
}

std::unique_ptr<Tokenizer> open_byte_bpe(const std::filesystem::path& file) {
  const std::string json = read_small_file(file);
  ByteBpeModel model = read_byte_bpe(json, file.string());
  const Beside beside = read_beside(file.parent_path());
  add_declared(model, beside, file.string());
  const DocumentTokens documents = document_tokens(beside, model.begins);
  return std::make_unique<ByteBpe>(std::move(model), documents, data::hash_bytes(json));
}

}  // namespace holdfast::text
