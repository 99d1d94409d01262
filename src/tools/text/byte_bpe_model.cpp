// Reader::read() takes a tokenizer.json apart in this order: the kind of model, the steps before it
// (read_cuts()), the vocabulary, merges, added tokens, and which token the post-processor puts first. Pieces
// are spelled in the alphabet of bytes, and unspelled() gives their bytes; a piece that spells none goes to
// `odd`. Every byte that UTF-8 can have must have a token, so any text can be encoded. An added token is
// either in the vocabulary or has the next id: ids have no gaps.
//
// add_declared() adds what the files beside it say, by the same rule, and document_tokens() lists which names
// of tokens may begin and end documents, the first choice first. A file that is damaged, or asks for
// something that is not supported, is an Error (usage) with the file's name.
#include "src/tools/text/byte_bpe_model.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "src/base/error.hpp"
#include "src/tools/text/byte_alphabet.hpp"
#include "src/tools/text/byte_bpe_cuts.hpp"
#include "src/tools/text/json_text.hpp"

namespace holdfast::text {
namespace {

using nlohmann::json;

constexpr std::size_t longest_added = 512;  // bytes of an added token: all of them are tried at a place

/// Reads one file; every complaint names it.
class Reader {
 public:
  Reader(const json& document, const std::string& name) : document_(document), name_(name) {}

  ByteBpeModel read() {
    if (!document_.is_object()) damaged("it is not an object");
    const json& model = member(document_, "model");
    if (!model.is_object()) damaged("'model' is not an object");
    check_kind(model);
    read_cuts(document_, name_, result_);
    read_vocabulary(member(model, "vocab"));
    read_merges(member(model, "merges"));
    if (document_.contains("added_tokens")) read_added(document_["added_tokens"]);
    result_.ignore_merges = flag(model, "ignore_merges");
    read_begin();
    const json pre_tokenizer = document_.value("pre_tokenizer", json());
    result_.only_byte_level = pre_tokenizer.is_object() && pre_tokenizer.value("type", json()) == "ByteLevel";
    return std::move(result_);
  }

 private:
  [[noreturn]] void damaged(const std::string& why) const { throw damaged_json(name_, why); }
  [[noreturn]] void refuse(const std::string& what) const { throw unsupported_json(name_, what); }

  const json& member(const json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) damaged(std::string("'") + key + "' is missing");
    return *found;
  }
  bool flag(const json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return false;
    if (!found->is_boolean()) damaged(std::string("'") + key + "' is neither true nor false");
    return found->get<bool>();
  }

  void check_kind(const json& model) const {
    // Files from before types were written have a vocabulary and merges, and only BPE has both.
    if (model.contains("type") && model["type"] != "BPE") {
      refuse("model " +
             (model["type"].is_string() ? model["type"].get<std::string>() : "of an unknown type"));
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (model.contains(key) && !model[key].is_null() && model[key] != "") refuse(key);
    }
    if (model.contains("dropout") && !model["dropout"].is_null() && model["dropout"] != 0.0)
      refuse("dropout");
  }

  void read_vocabulary(const json& vocabulary) {
    if (!vocabulary.is_object()) damaged("'vocab' is not an object");
    result_.bytes.resize(vocabulary.size());
    std::vector<bool> seen(vocabulary.size());
    result_.words.reserve(vocabulary.size());
    result_.byte_tokens.fill(-1);
    for (const auto& [piece, id] : vocabulary.items()) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= vocabulary.size())
        damaged("the token of '" + piece + "' is not below the size of the vocabulary");
      const auto token = id.get<std::uint32_t>();
      if (seen[token]) damaged("token " + std::to_string(token) + " is given twice");
      seen[token] = true;
      if (const auto bytes = unspelled(piece)) {
        result_.bytes[token] = *bytes;
        result_.words.emplace(*bytes, static_cast<Token>(token));
        if (bytes->size() == 1)
          result_.byte_tokens[static_cast<unsigned char>(bytes->front())] = static_cast<Token>(token);
      } else {
        result_.bytes[token] = piece;
        result_.odd.emplace(piece, static_cast<Token>(token));
      }
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool in_utf8 = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
      if (in_utf8 && result_.byte_tokens[byte] < 0)
        refuse("a vocabulary that cannot spell byte " + std::to_string(byte));
    }
  }

  Token known(const std::string& piece) const {
    const auto bytes = unspelled(piece);
    const auto& names = bytes ? result_.words : result_.odd;
    const auto found = names.find(bytes ? *bytes : piece);
    if (found == names.end()) damaged("a merge names '" + piece + "', which the vocabulary does not have");
    return found->second;
  }

  void read_merges(const json& merges) {
    if (!merges.is_array()) damaged("'merges' is not an array");
    result_.merges.reserve(merges.size());
    for (const json& merge : merges) {
      std::string left, right;
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      } else if (merge.is_string()) {
        const auto& both = merge.get_ref<const std::string&>();
        const std::size_t space = both.find(' ');
        if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos)
          damaged("merge '" + both + "' is not two pieces");
        left = both.substr(0, space);
        right = both.substr(space + 1);
      } else {
        damaged("a merge is not two pieces");
      }
      if (left.empty() || right.empty()) damaged("a merge of an empty piece");
      const auto rank = static_cast<std::uint32_t>(result_.merges.size());
      result_.merges.push_back({known(left), known(right), known(left + right), rank});
    }
  }

  void read_added(const json& added) {
    if (!added.is_array()) damaged("'added_tokens' is not an array");
    std::unordered_set<std::string> given;
    for (const json& entry : added) {
      if (!entry.is_object()) damaged("an added token is not an object");
      const json& content = member(entry, "content");
      const json& id = member(entry, "id");
      if (!content.is_string() || !id.is_number_unsigned()) damaged("an added token without content and id");
      AddedToken token;
      token.content = content.get<std::string>();
      if (token.content.empty() || token.content.size() > longest_added)
        refuse("an added token of " + std::to_string(token.content.size()) + " bytes");
      for (const char* key : {"single_word", "lstrip", "rstrip"}) {
        if (flag(entry, key)) refuse(std::string(key) + " of added token " + token.content);
      }
      token.special = flag(entry, "special");
      token.normalized = flag(entry, "normalized");
      const auto bytes = unspelled(token.content);
      const auto& names = bytes ? result_.words : result_.odd;
      const auto known = names.find(bytes ? *bytes : token.content);
      const std::uint64_t expected =
          known != names.end() ? static_cast<std::uint64_t>(known->second) : result_.bytes.size();
      if (id.get<std::uint64_t>() != expected) {
        damaged("added token '" + token.content + "' has id " + std::to_string(id.get<std::uint64_t>()) +
                " where " + std::to_string(expected) + " is next");
      }
      token.id = static_cast<Token>(expected);
      if (known == names.end())
        result_.bytes.push_back(token.content);
      else
        result_.bytes[expected] = token.content;
      if (!given.insert(token.content).second) damaged("added token '" + token.content + "' is given twice");
      result_.added.push_back(std::move(token));
    }
  }

  /// The first thing of a TemplateProcessing for one text, alone or as a part of a sequence, when it is a
  /// special token.
  void read_begin() {
    const auto found = document_.find("post_processor");
    if (found == document_.end() || !found->is_object()) return;
    const json sequence = found->value("processors", json::array({*found}));
    if (!sequence.is_array()) return;
    for (const json& processor : sequence) {
      if (!processor.is_object() || !processor.contains("single")) continue;
      const json& single = processor["single"];
      if (!single.is_array() || single.empty() || !single[0].is_object()) continue;
      const auto special = single[0].find("SpecialToken");
      if (special == single[0].end() || !special->is_object()) continue;
      const auto id = special->find("id");
      if (id != special->end() && id->is_string()) result_.begins = id->get<std::string>();
    }
  }

  const json& document_;
  const std::string& name_;
  ByteBpeModel result_;
};

/// Whether transformers puts the bos_token before a text: as the file says, which Llama's own classes then
/// write into the post-processor themselves; else where the post-processor does. Many a tokenizer names one
/// that no text of its model ever began with.
bool adds_begin(const Beside& beside, bool processor_does) {
  return beside.add_bos_token.value_or(processor_does ||
                                       beside.tokenizer_class.starts_with("LlamaTokenizer"));
}

/// The token that is spelled like this, added or not.
std::optional<Token> known_token(const ByteBpeModel& model, const std::string& content) {
  const auto bytes = unspelled(content);
  const auto& names = bytes ? model.words : model.odd;
  const auto found = names.find(bytes ? *bytes : content);
  return found != names.end() ? std::optional(found->second) : std::nullopt;
}

}  // namespace

ByteBpeModel read_byte_bpe(std::string_view text, const std::string& name) {
  const json document = parse_json(text, name);
  return Reader(document, name).read();
}

void add_declared(ByteBpeModel& model, const Beside& beside, const std::string& name) {
  if (model.only_byte_level && beside.add_prefix_space && *beside.add_prefix_space != model.prefix_space)
    throw Error(Exit::usage, "cannot use tokenizer " + name,
                "tokenizer_config.json beside it has another add_prefix_space, and releases of transformers "
                "differ in which of the two they follow",
                "Make both files say the same?");
  for (const DeclaredToken& declared : beside.added) {
    if (declared.content.empty() || declared.content.size() > longest_added)
      throw unsupported_beside(declared.said_by,
                               "an added token of " + std::to_string(declared.content.size()) + " bytes");
    const auto added = std::ranges::find(model.added, declared.content, &AddedToken::content);
    const auto known =
        added != model.added.end() ? std::optional(added->id) : known_token(model, declared.content);
    const auto next = static_cast<Token>(model.bytes.size());
    expect_id(declared, known.value_or(next), known.has_value(), name);
    if (added != model.added.end()) {
      added->special |= declared.special;
      continue;
    }
    if (known)
      model.bytes[*known] = declared.content;
    else
      model.bytes.push_back(declared.content);
    model.added.push_back({known.value_or(next), declared.content, declared.special, false});
  }
}

DocumentTokens document_tokens(const Beside& beside, const std::optional<std::string>& begins) {
  DocumentTokens tokens;
  tokens.end = {"<|end_of_text|>", "<|endoftext|>"};
  const std::string start = beside.token("bos_token"), end = beside.token("eos_token");
  if (!beside.configured || adds_begin(beside, begins.has_value())) {
    if (begins) tokens.start.push_back(*begins);
    if (!start.empty()) tokens.start.push_back(start);
  }
  if (!beside.configured) tokens.start.insert(tokens.start.end(), {"<|begin_of_text|>", "<s>"});
  if (!end.empty()) tokens.end.push_back(end);
  tokens.end.push_back("</s>");
  return tokens;
}

}  // namespace holdfast::text
