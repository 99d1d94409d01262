#include "checkpoint/index/vote.hpp"

#include <limits>

#include "checkpoint/index/hash.hpp"
#include "checkpoint/index/manifest_json.hpp"

namespace holdfast::checkpoint {
namespace {

using detail::Fields;
using detail::Json;

Json common_json(const Manifest& m) {
  Json tensors = Json::array();
  for (const LogicalTensor& tensor : m.tensors) tensors.push_back(detail::to_json(tensor));
  return {{"point", detail::to_json(m.point)},
          {"facts", detail::to_json(m.facts)},
          {"tensors", tensors},
          {"layout", detail::to_json(m.layout)}};
}

/// [[name, bytes, digest], ...]; what they say is proven with the whole.
std::vector<ListedFile> read_list(const Json& entries) {
  std::vector<ListedFile> list;
  for (const Json& entry : entries) {
    const std::string where = "vote.list[" + std::to_string(list.size()) + "]";
    if (!entry.is_array() || entry.size() != 3 || !entry[0].is_string() || !entry[1].is_number_unsigned() ||
        !entry[2].is_string())
      throw Damaged("the vote is not usable", where + " is not [name, bytes, digest]");
    if (entry[1].get<std::uint64_t>() > static_cast<std::uint64_t>(max_elements))
      throw Damaged("the vote is not usable", where + " has too many bytes");
    list.push_back({entry[0].get<std::string>(), entry[1].get<std::int64_t>(), entry[2].get<std::string>()});
  }
  return list;
}

}  // namespace

std::string vote_text(int rank, const Manifest& common, const ShardInfo& shard,
                      std::span<const std::uint64_t> piece_digests) {
  Json shared = common_json(common);
  const std::string agree = xxh3_128(detail::print(shared));
  if (rank != 0) shared = nullptr;
  return detail::print({{"schema_version", format_version},
                        {"rank", rank},
                        {"generation", detail::to_json(common.generation, common.point.step)},
                        {"agree", agree},
                        {"shard", detail::to_json(shard)},
                        {"piece_digests", detail::hex_list(piece_digests)},
                        {"common", shared}});
}

std::optional<FilesVote> parse_files_vote(const std::string& text) {
  const Json json = detail::parse_json(text, "the vote");
  if (const auto kind = json.find("kind"); kind == json.end() || *kind != "files") return std::nullopt;
  const bool named = json.contains("list");
  const Fields fields = named ? Fields(json, "vote", {"kind", "path", "files", "bytes", "list"})
                              : Fields(json, "vote", {"kind", "path", "files", "bytes"});
  FilesVote vote;
  vote.path = fields.text("path");
  vote.files = fields.integer("files");
  vote.bytes = fields.integer("bytes");
  if (!named) return vote;
  vote.list = read_list(fields.array("list"));
  std::int64_t bytes = 0;
  for (const ListedFile& file : *vote.list) bytes += file.bytes;
  if (vote.files != static_cast<std::int64_t>(vote.list->size()) || vote.bytes != bytes)
    throw Damaged("the vote is not usable", "its counts are not those of its list");
  return vote;
}

Vote parse_vote(const std::string& text) {
  const Json json = detail::parse_json(text, "the vote");
  const Fields fields(json, "vote",
                      {"schema_version", "rank", "generation", "agree", "shard", "piece_digests", "common"});
  if (fields.integer("schema_version") != format_version)
    throw Damaged("the vote is not usable", "it has another schema_version");
  Vote vote;
  vote.rank = static_cast<int>(fields.integer("rank", std::numeric_limits<int>::max()));
  vote.common.point.step =
      detail::read_generation(fields.value("generation"), "generation", vote.common.generation);
  vote.agree = fields.hex128("agree");
  vote.shard = detail::read_shard(fields.value("shard"), "shard", format_version, vote.rank);
  vote.piece_digests = detail::read_hex_list(fields, "piece_digests", 16);
  vote.has_common = !fields.value("common").is_null();
  if (!vote.has_common) return vote;
  const Fields common(fields.value("common"), "common", {"point", "facts", "tensors", "layout"});
  detail::read_point(common.value("point"), "point", format_version, vote.common.point);
  vote.common.facts = detail::read_facts(common.value("facts"), "facts");
  detail::read_tensors(common.array("tensors"), "tensors", vote.common.tensors, nullptr);
  vote.common.layout = detail::read_layout(common.value("layout"), "layout");
  return vote;
}

}  // namespace holdfast::checkpoint
