#pragma once
// Parts of a manifest as JSON values, for the manifest itself and for the votes that it is made of. Internal
// to checkpoint/.
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/index/manifest.hpp"

namespace holdfast::checkpoint::detail {

using Json = nlohmann::ordered_json;

Json to_json(const Generation& generation, std::int64_t step);
Json to_json(const Facts& facts);
Json to_json(const RunPoint& point);        ///< but the step, which stands with the generation
Json to_json(const LogicalTensor& tensor);  ///< but the digest
Json to_json(const LogicalTensor& tensor, std::uint64_t digest);
Json to_json(const ShardInfo& shard);  ///< as format_version has it
Json to_json(const WriterLayout& layout);

/// Text on one line. Bytes that are not UTF-8 become the replacement character: never an exception.
std::string print(const Json& json);
/// Parses text; throws Damaged that names `what` when it is not JSON.
Json parse_json(std::string_view text, const std::string& what);

/// `body` (a JSON object without its opening brace) behind a first line with version and the digest of every
/// byte but its own digits. That line is the same in all versions, so a text of a newer one is told from a
/// damaged one.
std::string with_own_digest(int version, std::string body);
/// The digest in such a text.
std::string own_digest(std::string_view text);
/// Checks such a text and returns its version. Throws Damaged that names `what`, and NewerFormat.
int check_own_digest(std::string_view text, const std::string& what);

/// A strict reader of one JSON object: every field is asked for exactly once, and none is left over. All
/// complaints are Damaged with the place, for example "shards[3].bytes is not a non-negative integer".
class Fields {
 public:
  Fields(const Json& object, std::string place, std::initializer_list<const char*> names);
  std::int64_t integer(const char* name, std::int64_t max = INT64_MAX) const;  ///< 0 ... max
  std::uint64_t unsigned64(const char* name) const;
  std::string text(const char* name) const;
  std::uint64_t hex64(const char* name) const;  ///< exactly 16 hex digits
  std::string hex128(const char* name) const;   ///< exactly 32 hex digits
  const Json& array(const char* name) const;
  const Json& value(const char* name) const;
  std::string place(const char* name) const { return place_.empty() ? name : place_ + "." + name; }

 private:
  const Json& object_;
  std::string place_;
};

/// Fixed-width lower-case hex; false when `text` is anything else.
bool parse_hex(std::string_view text, std::size_t digits, std::uint64_t& value);
/// One string of 16 hex digits for each value; and such a string read, of any number of digits each.
Json hex_list(std::span<const std::uint64_t> values);
std::vector<std::uint64_t> read_hex_list(const Fields& fields, const char* name, std::size_t digits);

std::int64_t read_generation(const Json& json, const std::string& place,
                             Generation& generation);  ///< returns the step
void read_point(const Json& json, const std::string& place, int version, RunPoint& point);  ///< but the step
Facts read_facts(const Json& json, const std::string& place);
/// `digests` null: the tensors come without.
void read_tensors(const Json& json, const std::string& place, std::vector<LogicalTensor>& tensors,
                  std::vector<std::uint64_t>* digests);
ShardInfo read_shard(const Json& json, const std::string& place, int version, int rank);
WriterLayout read_layout(const Json& json, const std::string& place);
IndexInfo read_index(const Json& json, const std::string& place);

}  // namespace holdfast::checkpoint::detail
