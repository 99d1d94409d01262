#include "src/tools/text/sentencepiece_bpe.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "src/base/as_size.hpp"
#include "src/base/utf8.hpp"
#include "src/tools/text/word_cache.hpp"

namespace holdfast::text {

struct SentencePieceBpe::Scratch {
  explicit Scratch(const MergeTable& merges) : merger(merges) {}
  WordCache cache;
  WordMerger merger;
  std::vector<Token> symbols, word;
};

class SentencePieceBpe::Encoding {
 public:
  Encoding(const SentencePieceBpe& bpe, Scratch& scratch, std::string_view text, std::vector<Token>& out,
           std::vector<std::size_t>* begins)
      : bpe_(bpe), scratch_(scratch), text_(text), out_(out), begins_(begins) {}

  void whole() {
    std::size_t done = 0;
    while (!bpe_.user_defined_.empty()) {
      const auto found = bpe_.user_defined_.next(text_, done, [](std::size_t, std::size_t) { return true; });
      if (!found) break;
      words(done, found->first);
      put(found->id, found->first);
      done = found->end;
    }
    words(done, text_.size());
  }

 private:
  void words(std::size_t first, std::size_t end) {
    while (first < end) {
      std::uint32_t left = utf8::code_point(text_.data() + first);
      std::size_t at = first + utf8::character_bytes(text_[first]);
      while (at < end) {
        const std::uint32_t right = utf8::code_point(text_.data() + at);
        if (!bpe_.joined(left, right)) break;
        left = right;
        at += utf8::character_bytes(text_[at]);
      }
      word(first, at);
      first = at;
    }
  }

  void word(std::size_t first, std::size_t end) {
    const std::string_view text = text_.substr(first, end - first);
    if (text.size() > WordCache::longest) {
      merge(text);
      put_word(scratch_.word, first);
      return;
    }
    const WordCache::Key key = WordCache::key_of(text);
    const std::span<const Token> known = scratch_.cache.find(key);
    if (!known.empty()) {
      put_word(known, first);
      return;
    }
    merge(text);
    scratch_.cache.keep(key, scratch_.word);
    put_word(scratch_.word, first);
  }

  void merge(std::string_view text) {
    scratch_.word.clear();
    scratch_.symbols.clear();
    for (std::size_t at = 0; at < text.size(); at += utf8::character_bytes(text[at])) {
      const Token symbol = bpe_.symbol(utf8::code_point(text.data() + at));
      if (symbol < 0) {  // it is a word of its own: no piece has it
        spell(text, scratch_.word);
        return;
      }
      scratch_.symbols.push_back(symbol);
    }
    scratch_.merger.merge(scratch_.symbols);
    for (const Token symbol : scratch_.symbols) {
      if (symbol < bpe_.vocabulary_)
        scratch_.word.push_back(symbol);
      else
        spell(bpe_.loose_[symbol - bpe_.vocabulary_], scratch_.word);
    }
  }
  void spell(std::string_view text, std::vector<Token>& word) const {
    for (const char byte : text) word.push_back(bpe_.bytes_[static_cast<unsigned char>(byte)]);
  }

  void put_word(std::span<const Token> tokens, std::size_t at) {
    if (begins_ == nullptr) {
      out_.insert(out_.end(), tokens.begin(), tokens.end());
      return;
    }
    for (const Token token : tokens) {
      put(token, at);
      at += bpe_.lengths_[token];
    }
  }
  void put(Token token, std::size_t at) {
    out_.push_back(token);
    if (begins_ != nullptr) begins_->push_back(at);
  }

  const SentencePieceBpe& bpe_;
  Scratch& scratch_;
  std::string_view text_;
  std::vector<Token>& out_;
  std::vector<std::size_t>* begins_;
};

SentencePieceBpe::SentencePieceBpe(const std::vector<Piece>& pieces, const std::array<Token, 256>& bytes,
                                   int vocabulary)
    : bytes_(bytes), vocabulary_(vocabulary), lengths_(as_size(vocabulary), 1), merges_(rules_of(pieces)) {
  for (std::uint32_t c = 0; c < ascii_symbols_.size(); ++c) {
    const auto found = symbols_.find(c);
    ascii_symbols_[c] = found != symbols_.end() ? found->second : -1;
  }
  for (const Piece& piece : pieces) {
    lengths_[piece.id] = piece.text.size();
    if (piece.user_defined) user_defined_.add(piece.text, piece.id, false);
  }
}

SentencePieceBpe::~SentencePieceBpe() = default;

/// All ways in which two symbols, each a piece or a character, are a piece together.
std::vector<MergeRule> SentencePieceBpe::rules_of(const std::vector<Piece>& pieces) {
  std::unordered_map<std::string_view, Token> symbols;
  std::map<float, std::uint32_t> ranks;  // equal scores have one rank: then the left one goes first
  for (const Piece& piece : pieces) {
    symbols.emplace(piece.text, piece.id);
    ranks[-piece.score] = 0;
    if (piece.text.size() == utf8::character_bytes(piece.text.front()))
      symbols_.emplace(utf8::code_point(piece.text.data()), piece.id);
  }
  std::uint32_t next = 0;
  for (auto& [score, rank] : ranks) rank = next++;
  for (const Piece& piece : pieces) add_characters(piece.text);

  const auto symbol_of = [&](std::string_view text) -> std::optional<Token> {
    if (const auto found = symbols.find(text); found != symbols.end()) return found->second;
    if (text.size() == utf8::character_bytes(text.front())) return symbols_.at(utf8::code_point(text.data()));
    return std::nullopt;
  };
  std::vector<MergeRule> rules;
  for (const Piece& piece : pieces) {
    const std::string_view text = piece.text;
    for (std::size_t at = utf8::character_bytes(text.front()); at < text.size();
         at += utf8::character_bytes(text[at])) {
      const auto left = symbol_of(text.substr(0, at)), right = symbol_of(text.substr(at));
      if (left && right) rules.push_back({*left, *right, piece.id, ranks[-piece.score]});
    }
  }
  return rules;
}

/// Its characters become symbols, and its neighbours known.
void SentencePieceBpe::add_characters(std::string_view piece) {
  std::optional<std::uint32_t> left;
  for (std::size_t at = 0; at < piece.size(); at += utf8::character_bytes(piece[at])) {
    const std::uint32_t right = utf8::code_point(piece.data() + at);
    if (symbols_.emplace(right, vocabulary_ + static_cast<Token>(loose_.size())).second)
      loose_.emplace_back(piece.substr(at, utf8::character_bytes(piece[at])));
    if (left && *left < 128 && right < 128) ascii_neighbours_.set(*left * 128 + right);
    if (left) neighbours_.insert(static_cast<std::uint64_t>(*left) << 32 | right);
    left = right;
  }
}

void SentencePieceBpe::encode(std::string_view text, std::vector<Token>& out,
                              std::vector<std::size_t>* begins) const {
  const auto scratch = scratch_.borrow([this] { return std::make_unique<Scratch>(merges_); });
  Encoding(*this, *scratch, text, out, begins).whole();
}

}  // namespace holdfast::text
