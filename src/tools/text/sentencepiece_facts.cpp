#include "src/tools/text/sentencepiece_facts.hpp"

#include <cstdint>

#include "src/tools/text/charsmap.hpp"

namespace holdfast::text {
namespace {

/// A field of a protocol buffer: https://protobuf.dev/programming-guides/encoding.
struct Field {
  std::uint64_t number = 0, value = 0;
  std::string_view bytes;  ///< a text's or a message's
};

class Fields {
 public:
  explicit Fields(std::string_view message) : left_(message) {}

  /// Nothing at the end, and where the message is damaged.
  std::optional<Field> next() {
    if (left_.empty()) return std::nullopt;
    const auto field = parse();
    if (!field) damaged_ = true;
    return field;
  }
  bool damaged() const { return damaged_; }

 private:
  std::optional<Field> parse() {
    const auto tag = varint();
    if (!tag || *tag >> 32 != 0) return std::nullopt;
    Field field;
    field.number = *tag >> 3;
    switch (*tag & 7) {
      case 0:
        if (const auto value = varint()) return field.value = *value, field;
        return std::nullopt;
      case 1:
        return take(8) ? std::optional(field) : std::nullopt;
      case 2: {
        const auto length = varint();
        const auto bytes = length ? take(*length) : std::nullopt;
        if (!bytes) return std::nullopt;
        return field.bytes = *bytes, field;
      }
      case 5:
        return take(4) ? std::optional(field) : std::nullopt;
      default:
        return std::nullopt;
    }
  }
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
  std::optional<std::string_view> take(std::uint64_t length) {
    if (length > left_.size()) return std::nullopt;
    const std::string_view bytes = left_.substr(0, length);
    left_.remove_prefix(length);
    return bytes;
  }

  std::string_view left_;
  bool damaged_ = false;
};

/// Fields of the messages of the same name.
enum Message : std::uint64_t { pieces = 1, trainer_spec = 2, normalizer_spec = 3, denormalizer_spec = 5 };

void note_piece(SentencePieceFacts& facts, const Field& entry) {
  if (entry.number == 3) facts.user_defined.back() = entry.value == 4;
}

void note_trainer(SentencePieceFacts& facts, const Field& entry) {
  const bool set = entry.value != 0;
  if (entry.number == 3) facts.bpe = entry.value == 2;
  if (entry.number == 24) facts.space_behind = set;
  if (entry.number == 35) facts.byte_fallback = set;
}

void note_normalizer(SentencePieceFacts& facts, const Field& entry) {
  const bool set = entry.value != 0;
  if (entry.number == 2) facts.rewrites = !entry.bytes.empty();
  if (entry.number == 3) facts.dummy_prefix = set;
  if (entry.number == 4) facts.drops_spaces = set;
  if (entry.number == 5) facts.escapes_spaces = set;
}

/// False where the message is damaged.
bool note(SentencePieceFacts& facts, const Field& message) {
  if (message.number == pieces) facts.user_defined.push_back(false);
  const bool rules = message.number == normalizer_spec || message.number == denormalizer_spec;
  Fields entries(message.bytes);
  while (const auto entry = entries.next()) {
    if (rules && entry->number == 2 && !entry->bytes.empty() && !sound_charsmap(entry->bytes)) return false;
    if (message.number == pieces) note_piece(facts, *entry);
    if (message.number == trainer_spec) note_trainer(facts, *entry);
    if (message.number == normalizer_spec) note_normalizer(facts, *entry);
  }
  return !entries.damaged();
}

}  // namespace

std::optional<SentencePieceFacts> sentencepiece_facts(std::string_view model) {
  SentencePieceFacts facts;
  Fields fields(model);
  while (const auto field = fields.next()) {
    const bool known = field->number >= pieces && field->number <= denormalizer_spec;
    if (known && !note(facts, *field)) return std::nullopt;
  }
  if (fields.damaged()) return std::nullopt;
  return facts;
}

}  // namespace holdfast::text
