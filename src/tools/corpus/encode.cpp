// encode_part() is called by a worker for one part, in which no other worker writes. PartEncoder opens a
// token file for training, and one for validation if a share is held out. encode_texts() or encode_tokens()
// then goes through the documents: it counts each, leaves out those that KeptDocuments calls duplicates, and
// appends the others to their side. At the tail's border a document may go to both. A conversation that its
// template refuses is counted as broken, and ends the work only under --strict.
//
// If duplicates are left out, the part must have had as many documents as when they were sought; otherwise
// the input has changed, which is an Error. Input files that begin in this part are hashed, the token files
// finished, and save() writes the counts. That comes last: a part without it is not done, and is encoded
// again.
#include "src/tools/corpus/encode.hpp"

#include <xxhash.h>

#include <algorithm>
#include <optional>

#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"
#include "src/tools/chat/conversation.hpp"
#include "src/tools/corpus/own_tokens.hpp"
#include "src/tools/corpus/split.hpp"

namespace holdfast::corpus {
namespace fs = std::filesystem;
namespace {

std::string hash_of_file(const fs::path& path, Tally& tally) {
  const auto stream = open_stream(path, Compression::none);
  std::string bytes(1 << 20, '\0');
  const std::unique_ptr<XXH3_state_t, void (*)(XXH3_state_t*)> state(
      XXH3_createState(), [](XXH3_state_t* s) { XXH3_freeState(s); });
  XXH3_128bits_reset(state.get());
  while (const std::size_t got = stream->read(bytes.data(), bytes.size())) {
    XXH3_128bits_update(state.get(), bytes.data(), got);
    tally.add(0);
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state.get()));
  data::Hash128 hash;
  std::copy_n(canonical.digest, hash.size(), hash.begin());
  return data::hex(hash);
}

/// A token file and what was put into it.
class Side {
 public:
  Side(const Plan& plan, const fs::path& path) : file_(path, plan.vocabulary(), plan.tokenizer_identity()) {}

  void begin_document() {
    file_.begin_document();
    ++counts_.documents;
  }
  void append(std::span<const std::int32_t> tokens) { file_.append(tokens); }
  void append(const chat::Example& example) { file_.append(example.tokens, example.learned); }
  SideCounts finish() {
    counts_.tokens = file_.size();
    file_.finish();
    return counts_;
  }

 private:
  data::TokenFileWriter file_;
  SideCounts counts_;
};

class PartEncoder {
 public:
  PartEncoder(const Plan& plan, std::size_t part, const KeptDocuments* kept, Tally& tally)
      : plan_(plan),
        settings_(plan.settings),
        number_(part),
        part_(plan.parts[part]),
        kept_(kept),
        tally_(tally),
        train_(plan, plan.work.train(part)) {
    if (settings_.val_fraction > 0) validation_.emplace(plan, plan.work.validation(part));
    if (settings_.format == Format::chat) template_.emplace(chat::open_template(plan.chat_folder()));
  }

  void run() {
    is_tokens(settings_.format) ? encode_tokens() : encode_texts();
    if (kept_ && document_ != kept_->documents(number_))
      throw Error(Exit::runtime, "the input has changed",
                  "part " + std::to_string(number_) + " has other documents than when duplicates were sought",
                  "Run the same command again?");
    for (const Range& range : part_) {
      if (range.begin > 0) continue;
      fs::path path = plan_.inputs[range.input].path;
      if (settings_.format == Format::megatron) path.replace_extension(".bin");
      result_.hashes[range.input] = hash_of_file(path, tally_);
    }
    result_.train = train_.finish();
    if (validation_) result_.validation = validation_->finish();
    save(plan_, number_, result_);
  }

 private:
  bool is_kept() {
    return !kept_ || (document_ < kept_->documents(number_) && kept_->keeps(number_, document_));
  }

  Side& side(bool is_validation) { return is_validation ? *validation_ : train_; }

  // ---- text

  void encode_texts() {
    Reader reader(settings_, plan_.inputs, part_, tally_);
    for (Document document; reader.next(document); ++document_) {
      if (!is_kept()) continue;
      if (template_)
        put_conversation(document, reader);
      else
        put_text(document);
    }
    result_.read = reader.counts();
    result_.broken = reader.broken();
    result_.ranges = reader.ranges();
  }

  void put_conversation(const Document& document, Reader& reader) {
    try {
      const auto line = json_from<nlohmann::ordered_json>(document.text);
      const chat::Example example =
          chat::tokenize(line.at("messages"), *template_, *plan_.tokenizer, line.at("extra"));
      Side& to = side(!sides_of(plan_, document).validation.empty());
      to.begin_document();
      to.append(example);
      count_unknown(example.tokens);
      result_.rewritten += example.rewritten;
    } catch (const Error& error) {
      if (error.exit() != Exit::usage) throw;
      reader.reject(document, error.what());
    }
  }

  void put_text(const Document& document) {
    const Sides sides = sides_of(plan_, document);
    if (!sides.train.empty()) put(train_, sides.train, sides.validation.empty());
    if (!sides.validation.empty()) put(*validation_, sides.validation, true);
  }

  void put(Side& to, std::string_view text, bool ends) {
    tokens_.clear();
    if (const auto start = plan_.tokenizer->document_start(); start) tokens_.push_back(*start);
    plan_.tokenizer->encode(text, tokens_);
    if (const auto end = plan_.tokenizer->document_end(); end && ends && settings_.document_end)
      tokens_.push_back(*end);
    if (tokens_.empty()) return;
    to.begin_document();
    to.append(tokens_);
    count_unknown(tokens_);
  }

  void count_unknown(const std::vector<std::int32_t>& tokens) {
    if (const auto unknown = plan_.tokenizer->unknown())
      result_.unknown += std::count(tokens.begin(), tokens.end(), *unknown);
  }

  // ---- tokens

  void encode_tokens() {
    for (const Range& range : part_) {
      OwnTokens file(plan_.inputs[range.input], settings_.document_start);
      for (TokenSpan span; file.next(span); ++document_) {
        ++result_.read.documents;
        result_.read.bytes += span.end - span.begin;
        if (is_kept()) put_tokens(file, range.input, span);
      }
      result_.read.empty += file.empty();
    }
    result_.ranges.resize(part_.size());
  }

  void put_tokens(const OwnTokens& file, std::uint32_t input, const TokenSpan& span) {
    if (!validation_) return put_span(train_, file, span);
    if (settings_.split == Split::documents) {
      const auto bytes = file.bytes(span);
      const auto hash = data::hash_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      return put_span(side(is_held_out(hash, settings_.val_fraction)), file, span);
    }
    const Border& border = plan_.border;
    const bool whole_file = settings_.format != Format::megatron && !settings_.document_start;
    if (!whole_file || border.input != input)
      return put_span(side(border.is_behind(input, span.begin)), file, span);
    const std::uint64_t at = std::clamp(border.at / file.width() * file.width(), span.begin, span.end);
    put_span(train_, file, {span.begin, at});
    put_span(*validation_, file, {at, span.end});
  }

  void put_span(Side& to, const OwnTokens& file, const TokenSpan& span) {
    if (span.begin == span.end) return;
    to.begin_document();
    const std::uint64_t chunk = file.width() << 16;
    for (std::uint64_t at = span.begin; at < span.end; at += chunk) {
      const TokenSpan piece = {at, std::min(at + chunk, span.end)};
      file.decode(piece, plan_.vocabulary(), tokens_);
      to.append(tokens_);
      tally_.add(piece.end - piece.begin);
    }
  }

  const Plan& plan_;
  const Settings& settings_;
  std::size_t number_;
  const Part& part_;
  const KeptDocuments* kept_;
  Tally& tally_;
  std::uint64_t document_ = 0;  ///< of the part
  Side train_;
  std::optional<Side> validation_;
  std::optional<chat::Template> template_;
  std::vector<std::int32_t> tokens_;
  PartResult result_;
};

}  // namespace

void encode_part(const Plan& plan, std::size_t part, const KeptDocuments* kept, Tally& tally) {
  PartEncoder(plan, part, kept, tally).run();
}

}  // namespace holdfast::corpus
