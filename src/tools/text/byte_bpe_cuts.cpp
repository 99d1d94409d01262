#include "src/tools/text/byte_bpe_cuts.hpp"

#include "src/tools/text/json_text.hpp"

namespace holdfast::text {
namespace {

using nlohmann::json;

constexpr std::size_t max_cuts = 32;
/// GPT-2's own (encoder.py), which ByteLevel applies when it is asked to.
constexpr std::string_view byte_level_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// What Digits takes for digits: it asks Rust's library, which knows Unicode 17.
constexpr std::string_view digit_class = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";

class CutReader {
 public:
  CutReader(const std::string& name, ByteBpeModel& model) : name_(name), model_(model) {}

  void read(const json& document) {
    normalizer(document.value("normalizer", json()));
    pre_tokenizer(document.value("pre_tokenizer", json()));
    if (!byte_level_) throw unsupported_json(name_, "a tokenizer without a ByteLevel pre-tokenizer");
  }

 private:
  std::string type_of(const json& part) const {
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
      throw damaged_json(name_, "a part without a type");
    return part["type"].get<std::string>();
  }
  const json& list(const json& part, const char* key) const {
    if (!part.contains(key) || !part[key].is_array())
      throw damaged_json(name_, std::string("'") + key + "' is missing");
    return part[key];
  }
  bool flag(const json& part, const char* key, bool absent) const {
    if (!part.contains(key)) return absent;
    if (!part[key].is_boolean())
      throw damaged_json(name_, std::string("'") + key + "' is neither true nor false");
    return part[key].get<bool>();
  }

  void normalizer(const json& part) {
    if (part.is_null()) return;
    const std::string type = type_of(part);
    if (type == "NFC") {
      model_.nfc = true;
    } else if (type == "Sequence") {
      for (const json& inner : list(part, "normalizers")) normalizer(inner);
    } else {
      throw unsupported_json(name_, "normalizer " + type);
    }
  }

  void pre_tokenizer(const json& part) {
    if (part.is_null()) return;
    const std::string type = type_of(part);
    if (byte_level_) throw unsupported_json(name_, "pre-tokenizer " + type + " behind ByteLevel");
    if (model_.cuts.size() >= max_cuts) throw unsupported_json(name_, "so long a pre-tokenizer");
    if (type == "Sequence") {
      for (const json& inner : list(part, "pretokenizers")) pre_tokenizer(inner);
    } else if (type == "ByteLevel") {
      byte_level(part);
    } else if (type == "Split") {
      split(part);
    } else if (type == "Digits") {
      const bool one_by_one = flag(part, "individual_digits", false);
      model_.cuts.push_back({Pattern(std::string(digit_class) + (one_by_one ? "" : "+"))});
    } else {
      throw unsupported_json(name_, "pre-tokenizer " + type);
    }
  }

  void byte_level(const json& part) {
    byte_level_ = true;
    model_.prefix_space = flag(part, "add_prefix_space", true);
    if (model_.prefix_space && !model_.cuts.empty())
      throw unsupported_json(name_, "add_prefix_space behind another pre-tokenizer");
    if (flag(part, "use_regex", true)) model_.cuts.push_back({Pattern(byte_level_pattern)});
  }

  void split(const json& part) {
    const json pattern = part.value("pattern", json());
    const bool known = pattern.is_object() && pattern.size() == 1 && pattern.begin()->is_string();
    if (!known || (pattern.begin().key() != "Regex" && pattern.begin().key() != "String"))
      throw damaged_json(name_, "Split has no pattern");
    const auto& text = pattern.begin()->get_ref<const std::string&>();
    Cut cut{pattern.begin().key() == "Regex" ? Pattern(text) : Pattern::literal(text)};
    const bool invert = flag(part, "invert", false);
    const json behaviour = part.value("behavior", json());
    if (behaviour == "Removed") {
      (invert ? cut.keep_others : cut.keep_matches) = false;
    } else if (behaviour != "Isolated") {
      throw unsupported_json(name_, "Split with behaviour " + behaviour.dump());
    }
    model_.cuts.push_back(std::move(cut));
  }

  const std::string& name_;
  ByteBpeModel& model_;
  bool byte_level_ = false;
};

}  // namespace

void read_cuts(const json& document, const std::string& name, ByteBpeModel& model) {
  CutReader(name, model).read(document);
}

}  // namespace holdfast::text
