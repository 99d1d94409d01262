#include "src/text/sentencepiece_facts.hpp"

#include <cstdint>
#include <optional>

namespace holdfast::text {
namespace {

/// A field of a protocol buffer: https://protobuf.dev/programming-guides/encoding.
struct Field {
  std::uint64_t number = 0, value = 0;
  std::string_view bytes;
};

class Fields {
 public:
  explicit Fields(std::string_view message) : left_(message) {}

  /// Nothing at the end, and where the message is damaged.
  std::optional<Field> next() {
    const auto tag = varint();
    if (!tag) return std::nullopt;
    Field field;
    field.number = *tag >> 3;
    std::uint64_t length = 0;
    switch (*tag & 7) {
      case 0:
        if (const auto value = varint()) return field.value = *value, field;
        return std::nullopt;
      case 1:
        length = 8;
        break;
      case 2:
        if (const auto value = varint())
          length = *value;
        else
          return std::nullopt;
        break;
      case 5:
        length = 4;
        break;
      default:
        return std::nullopt;
    }
    if (length > left_.size()) return std::nullopt;
    field.bytes = left_.substr(0, length);
    left_.remove_prefix(length);
    return field;
  }

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }
  std::string_view left_;
};

}  // namespace

SentencePieceFacts sentencepiece_facts(std::string_view model) {
  SentencePieceFacts facts;
  Fields fields(model);
  while (const auto field = fields.next()) {
    if (field->number < 1 || field->number > 3) continue;
    if (field->number == 1) facts.user_defined.push_back(false);  // pieces
    Fields inner(field->bytes);
    while (const auto entry = inner.next()) {
      const bool set = entry->value != 0;
      if (field->number == 1 && entry->number == 3) facts.user_defined.back() = entry->value == 4;
      if (field->number == 2) {  // trainer_spec
        if (entry->number == 3) facts.bpe = entry->value == 2;
        if (entry->number == 24) facts.space_behind = set;
        if (entry->number == 35) facts.byte_fallback = set;
      }
      if (field->number == 3) {  // normalizer_spec
        if (entry->number == 2) facts.rewrites = !entry->bytes.empty();
        if (entry->number == 3) facts.dummy_prefix = set;
        if (entry->number == 4) facts.drops_spaces = set;
        if (entry->number == 5) facts.escapes_spaces = set;
      }
    }
  }
  return facts;
}

}  // namespace holdfast::text
