// Writing: to_json() makes the value of one part, print() its text on one line, and with_own_digest() puts
// the line with version and digest before the whole. Reading goes the other way. check_own_digest() looks at
// the first line and compares the digest before any JSON is parsed: an altered byte is Damaged, and only a
// text with a right digest can be of a newer version. Then parse_json() makes the value, and a read_...()
// function takes each part out of it.
//
// Each of those makes a Fields of its object, with the names that the version of the text has. Its
// constructor refuses a missing and an unknown field, its methods a value of another type or range. Whether
// numbers of different fields fit together is proven later, in manifest_proof.cpp.
#include "checkpoint/index/manifest_json.hpp"

#include <cstdio>
#include <limits>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/hash.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::checkpoint::detail {
namespace {

std::string hex32(std::uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

bool is_natural(const Json& value) {
  return value.is_number_integer() && (value.is_number_unsigned() || value.get<std::int64_t>() >= 0);
}

std::int64_t natural(const Json& value, const std::string& place, std::int64_t max) {
  if (!is_natural(value))
    throw Damaged("the manifest is not usable", place + " is not a non-negative integer");
  if (value.get<std::uint64_t>() > static_cast<std::uint64_t>(max))
    throw Damaged("the manifest is not usable",
                  place + " is " + value.dump() + ", at most " + std::to_string(max) + " is possible");
  return value.get<std::int64_t>();
}

constexpr int max_int = std::numeric_limits<int>::max();

constexpr std::string_view version_key = "{\"schema_version\":";
constexpr std::string_view digest_key = ",\"digest\":\"";
constexpr std::string_view line_end = "\",\n";
constexpr std::size_t digest_digits = 32;

}  // namespace

Json to_json(const Generation& generation, std::int64_t step) {
  return {{"step", step}, {"epoch", generation.term}, {"attempt", generation.attempt}};
}

Json to_json(const Facts& facts) {
  return {{"model_toml", facts.model_toml},       {"world", facts.world},
          {"strategy", facts.strategy},           {"numerics", facts.numerics},
          {"data_identity", facts.data_identity}, {"seed", facts.seed},
          {"config_hash", facts.config_hash}};
}

Json to_json(const RunPoint& point) {
  return {{"tokens", point.tokens},
          {"samples", point.samples},
          {"detector", point.detector},
          {"scaling", point.scaling}};
}

Json to_json(const LogicalTensor& tensor) {
  return {{"name", tensor.name},
          {"rows", tensor.rows},
          {"cols", tensor.cols},
          {"dtype", tensor.type == DType::fp32 ? "f32" : "bf16"}};
}

Json to_json(const LogicalTensor& tensor, std::uint64_t digest) {
  Json json = to_json(tensor);
  json["digest"] = digest_text(digest);
  return json;
}

Json to_json(const ShardInfo& shard) {
  return {{"bytes", shard.bytes},
          {"data_offset", shard.data_offset},
          {"payload_offset", shard.payload_offset},
          {"metadata_crc32c", hex32(shard.metadata_crc32c)},
          {"root", shard.root}};
}

Json to_json(const WriterLayout& layout) {
  Json cuts = Json::array();
  for (const Cut& cut : layout.cuts) cuts.push_back(Json::array({cut.tensors, cut.stride, cut.part}));
  return {{"members", layout.members}, {"replicas", layout.replicas}, {"cuts", cuts}};
}

std::string print(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json parse_json(std::string_view text, const std::string& what) {
  Json json = json_from<Json>(text);
  if (json.is_discarded())
    throw Damaged(what + " is not usable",
                  nests_deeper(text, deepest_json) ? "its JSON is nested too deeply" : "it is not JSON");
  return json;
}

std::string with_own_digest(int version, std::string body) {
  const std::string head = std::string(version_key) + std::to_string(version) + std::string(digest_key);
  body.insert(0, line_end);
  return head + xxh3_128(head, body) + body;
}

std::string own_digest(std::string_view text) {
  return std::string(text.substr(text.find(digest_key) + digest_key.size(), digest_digits));
}

int check_own_digest(std::string_view text, const std::string& what) {
  const auto refuse = [&](const std::string& why) { throw Damaged(what + " is not usable", why); };
  const std::size_t version_at = version_key.size();
  std::size_t at = version_at;
  int version = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && version < 1'000'000; ++at)
    version = version * 10 + (text[at] - '0');
  const std::size_t digest_at = at + digest_key.size(), body_at = digest_at + digest_digits + line_end.size();
  if (!text.starts_with(version_key) || at == version_at || text.size() < body_at ||
      text.substr(at, digest_key.size()) != digest_key ||
      text.substr(body_at - line_end.size(), line_end.size()) != line_end)
    refuse("its first line has another form");
  if (xxh3_128(text.substr(0, digest_at), text.substr(digest_at + digest_digits)) !=
      text.substr(digest_at, digest_digits))
    refuse("it was altered or cut: its digest does not match");
  if (version > newest_version)
    throw NewerFormat("the checkpoint has a newer format",
                      "version " + std::to_string(version) + ", this Holdfast reads up to " +
                          std::to_string(newest_version),
                      "Use the Holdfast that wrote it?");
  if (version < 1) refuse("schema_version " + std::to_string(version) + " never existed");
  return version;
}

bool parse_hex(std::string_view text, std::size_t digits, std::uint64_t& value) {
  if (text.size() != digits) return false;
  value = 0;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return false;
    value = value << 4 | static_cast<std::uint64_t>(digit);
  }
  return true;
}

Json hex_list(std::span<const std::uint64_t> values) {
  std::string text;
  text.reserve(values.size() * 16);
  for (const std::uint64_t value : values) text += digest_text(value);
  return text;
}

std::vector<std::uint64_t> read_hex_list(const Fields& fields, const char* name, std::size_t digits) {
  const std::string text = fields.text(name);
  std::vector<std::uint64_t> values(text.size() / digits);
  bool good = text.size() % digits == 0;
  for (std::size_t i = 0; good && i < values.size(); ++i)
    good = parse_hex(std::string_view(text).substr(i * digits, digits), digits, values[i]);
  if (!good)
    throw Damaged("the manifest is not usable",
                  fields.place(name) + " is not a list of " + std::to_string(digits) + " hex digits");
  return values;
}

Fields::Fields(const Json& object, std::string place, std::initializer_list<const char*> names)
    : object_(object), place_(std::move(place)) {
  std::string where = place_.empty() ? "the top level" : place_;
  if (!object.is_object()) throw Damaged("the manifest is not usable", where + " is not an object");
  for (const char* name : names)
    if (!object.contains(name))
      throw Damaged("the manifest is not usable", this->place(name) + " is missing");
  if (object.size() == names.size()) return;
  for (const auto& [key, value] : object.items()) {
    bool known = false;
    for (const char* name : names) known |= key == name;
    if (known) continue;
    where += " has an unknown field \"" + key + "\"";
    throw Damaged("the manifest is not usable", where);
  }
}

const Json& Fields::value(const char* name) const { return object_.at(name); }

std::int64_t Fields::integer(const char* name, std::int64_t max) const {
  return natural(value(name), place(name), max);
}

std::uint64_t Fields::unsigned64(const char* name) const {
  if (!is_natural(value(name)))
    throw Damaged("the manifest is not usable", place(name) + " is not a non-negative integer");
  return value(name).get<std::uint64_t>();
}

std::string Fields::text(const char* name) const {
  if (!value(name).is_string()) throw Damaged("the manifest is not usable", place(name) + " is not a text");
  return value(name).get<std::string>();
}

std::uint64_t Fields::hex64(const char* name) const {
  std::uint64_t number = 0;
  if (!parse_hex(text(name), 16, number))
    throw Damaged("the manifest is not usable", place(name) + " is not 16 hex digits");
  return number;
}

std::string Fields::hex128(const char* name) const {
  std::string digits = text(name);
  std::uint64_t half = 0;
  if (digits.size() != 32 || !parse_hex(std::string_view(digits).substr(0, 16), 16, half) ||
      !parse_hex(std::string_view(digits).substr(16), 16, half))
    throw Damaged("the manifest is not usable", place(name) + " is not 32 hex digits");
  return digits;
}

const Json& Fields::array(const char* name) const {
  if (!value(name).is_array()) throw Damaged("the manifest is not usable", place(name) + " is not a list");
  return value(name);
}

std::int64_t read_generation(const Json& json, const std::string& place, Generation& generation) {
  const Fields fields(json, place, {"step", "epoch", "attempt"});
  generation = {static_cast<int>(fields.integer("epoch", max_int)),
                static_cast<int>(fields.integer("attempt", max_int))};
  return fields.integer("step");
}

void read_point(const Json& json, const std::string& place, int version, RunPoint& point) {
  const Fields fields = version == 1   ? Fields(json, place, {"tokens", "samples"})
                        : version == 2 ? Fields(json, place, {"tokens", "samples", "detector"})
                                       : Fields(json, place, {"tokens", "samples", "detector", "scaling"});
  point.tokens = fields.integer("tokens");
  point.samples = fields.integer("samples");
  if (version > 1) point.detector = fields.text("detector");
  if (version > 2) point.scaling = fields.text("scaling");
}

Facts read_facts(const Json& json, const std::string& place) {
  const Fields fields(
      json, place, {"model_toml", "world", "strategy", "numerics", "data_identity", "seed", "config_hash"});
  Facts facts;
  facts.model_toml = fields.text("model_toml");
  facts.world = static_cast<int>(fields.integer("world", max_int));
  facts.strategy = fields.text("strategy");
  facts.numerics = fields.text("numerics");
  facts.data_identity = fields.text("data_identity");
  facts.seed = fields.unsigned64("seed");
  facts.config_hash = fields.text("config_hash");
  return facts;
}

void read_tensors(const Json& json, const std::string& place, std::vector<LogicalTensor>& tensors,
                  std::vector<std::uint64_t>* digests) {
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string where = place + "[" + std::to_string(i) + "]";
    const Fields fields = digests ? Fields(json[i], where, {"name", "rows", "cols", "dtype", "digest"})
                                  : Fields(json[i], where, {"name", "rows", "cols", "dtype"});
    const std::string dtype = fields.text("dtype");
    if (dtype != "f32" && dtype != "bf16")
      throw Damaged("the manifest is not usable",
                    fields.place("dtype") + " is \"" + dtype + "\", this format has f32 and bf16");
    tensors.push_back({fields.text("name"), fields.integer("rows"), fields.integer("cols"),
                       dtype == "f32" ? DType::fp32 : DType::bf16});
    const LogicalTensor& tensor = tensors.back();
    if (tensor.cols > 0 && tensor.rows > max_elements / tensor.cols)
      refuse_manifest("tensor " + tensor.name + " cannot be " + std::to_string(tensor.rows) + " x " +
                      std::to_string(tensor.cols));
    if (digests) digests->push_back(fields.hex64("digest"));
  }
}

ShardInfo read_shard(const Json& json, const std::string& place, int version, int rank) {
  const Fields fields =
      version < 4
          ? Fields(json, place,
                   {"file", "bytes", "data_offset", "metadata_crc32c", "block_crc32c", "root", "pieces"})
      : version < 5
          ? Fields(json, place,
                   {"file", "bytes", "data_offset", "metadata_crc32c", "payload_offset", "root", "pieces"})
          : Fields(json, place, {"bytes", "data_offset", "metadata_crc32c", "payload_offset", "root"});
  ShardInfo shard;
  shard.file = version < 5 ? fields.text("file") : shard_file_name(rank);
  shard.bytes = fields.integer("bytes");
  shard.data_offset = fields.integer("data_offset");
  shard.root = fields.hex128("root");
  std::uint64_t crc = 0;
  if (!parse_hex(fields.text("metadata_crc32c"), 8, crc))
    throw Damaged("the manifest is not usable", fields.place("metadata_crc32c") + " is not 8 hex digits");
  shard.metadata_crc32c = static_cast<std::uint32_t>(crc);
  if (version < 4)
    for (const std::uint64_t block : read_hex_list(fields, "block_crc32c", 8))
      shard.block_crc32c.push_back(static_cast<std::uint32_t>(block));
  else
    shard.payload_offset = fields.integer("payload_offset");
  if (version >= 5) return shard;
  for (const Json& piece : fields.array("pieces")) {
    const std::string where = fields.place("pieces") + "[" + std::to_string(shard.pieces.size()) + "]";
    if (!piece.is_array() || piece.size() != 4)
      throw Damaged("the manifest is not usable", where + " is not [tensor, first, count, offset]");
    shard.pieces.push_back(
        {{static_cast<int>(natural(piece[0], where + "[0]", max_int)),
          natural(piece[1], where + "[1]", INT64_MAX), natural(piece[2], where + "[2]", INT64_MAX)},
         natural(piece[3], where + "[3]", INT64_MAX)});
  }
  return shard;
}

WriterLayout read_layout(const Json& json, const std::string& place) {
  const Fields fields(json, place, {"members", "replicas", "cuts"});
  WriterLayout layout{static_cast<int>(fields.integer("members", max_int)),
                      static_cast<int>(fields.integer("replicas", max_int)),
                      {}};
  for (const Json& cut : fields.array("cuts")) {
    const std::string where = fields.place("cuts") + "[" + std::to_string(layout.cuts.size()) + "]";
    if (!cut.is_array() || cut.size() != 3)
      throw Damaged("the manifest is not usable", where + " is not [tensors, stride, part]");
    layout.cuts.push_back({static_cast<int>(natural(cut[0], where + "[0]", max_int)),
                           natural(cut[1], where + "[1]", INT64_MAX),
                           natural(cut[2], where + "[2]", INT64_MAX)});
  }
  return layout;
}

IndexInfo read_index(const Json& json, const std::string& place) {
  const Fields fields(json, place, {"file", "bytes", "xxh3"});
  return {fields.text("file"), fields.integer("bytes"), fields.hex128("xxh3")};
}

}  // namespace holdfast::checkpoint::detail
