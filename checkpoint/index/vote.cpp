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
  const Fields fields(json, "vote", {"kind", "path", "files", "bytes"});
  FilesVote vote;
  vote.path = fields.text("path");
  vote.files = fields.integer("files");
  vote.bytes = fields.integer("bytes");
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
