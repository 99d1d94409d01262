#include "src/tools/corpus/part_result.hpp"

#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::corpus {
namespace {

using nlohmann::json;

json to_json(const SideCounts& side) { return {side.documents, side.tokens}; }
SideCounts side_of(const json& from) {
  return {from.at(0).get<std::int64_t>(), from.at(1).get<std::int64_t>()};
}

}  // namespace

void save(const Plan& plan, std::size_t part, const PartResult& result) {
  json broken = json::array(), hashes = json::array(), ranges = json::array();
  for (const RangeCounts& range : result.ranges)
    ranges.push_back({range.lines, range.documents, range.left_out});
  for (const Broken& line : result.broken) broken.push_back({line.range, line.line, line.why});
  for (const auto& [input, hash] : result.hashes) hashes.push_back({input, hash});
  const json all = {{"documents", result.read.documents},
                    {"bytes", result.read.bytes},
                    {"empty", result.read.empty},
                    {"broken", result.read.broken},
                    {"repaired", result.read.repaired},
                    {"rewritten", result.rewritten},
                    {"unknown", result.unknown},
                    {"train", to_json(result.train)},
                    {"validation", to_json(result.validation)},
                    {"broken_lines", broken},
                    {"ranges", ranges},
                    {"hashes", hashes}};
  files::replace_atomically(plan.work.result(part), all.dump(-1, ' ', false, json::error_handler_t::replace),
                            0644);
}

bool is_done(const Plan& plan, std::size_t part) {
  std::error_code error;
  return std::filesystem::exists(plan.work.result(part), error);
}

PartResult load_result(const Plan& plan, std::size_t part) {
  const auto path = plan.work.result(part);
  if (!is_done(plan, part))
    throw Error(Exit::runtime, "part " + std::to_string(part) + " is not done", path.string() + " is missing",
                "Run the stage 'tokens' again?");
  try {
    const json all = json_from(files::read_text(path));
    PartResult result;
    result.read = {all.at("documents").get<std::uint64_t>(), all.at("bytes").get<std::uint64_t>(),
                   all.at("empty").get<std::uint64_t>(), all.at("broken").get<std::uint64_t>(),
                   all.at("repaired").get<std::uint64_t>()};
    result.rewritten = all.at("rewritten").get<std::int64_t>();
    result.unknown = all.at("unknown").get<std::int64_t>();
    result.train = side_of(all.at("train"));
    result.validation = side_of(all.at("validation"));
    for (const json& line : all.at("broken_lines"))
      result.broken.push_back(
          {line.at(0).get<std::uint32_t>(), line.at(1).get<std::uint64_t>(), line.at(2).get<std::string>()});
    for (const json& range : all.at("ranges"))
      result.ranges.push_back({range.at(0).get<std::uint64_t>(), range.at(1).get<std::uint64_t>(),
                               range.at(2).get<std::uint64_t>()});
    for (const json& hash : all.at("hashes"))
      result.hashes.emplace(hash.at(0).get<std::uint32_t>(), hash.at(1).get<std::string>());
    return result;
  } catch (const json::exception& error) {
    throw Error(Exit::runtime, path.string() + " is damaged", error.what(),
                "Remove it, and run the same command again?");
  }
}

}  // namespace holdfast::corpus
