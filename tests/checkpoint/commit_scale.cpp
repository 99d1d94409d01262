// What a commit costs at scale, without ranks and without a network: for scripts/bench/commit_scale.sh, not a
// test.
//   commit_scale CHECKPOINTS VOTES STEP TERM ATTEMPT WORLD ARCHIVES
// Adds the votes that make_votes has left in VOTES, commits, and measures what readers and retention do then:
// beside ARCHIVES checkpoints of the same size; without their commit records; and for comparison with a
// manifest that names every piece, as format 4 had it. One thread. Prints JSON.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/commit.hpp"
#include "checkpoint/index/commit_record.hpp"
#include "checkpoint/index/manifest_json.hpp"
#include "checkpoint/index/retention.hpp"
#include "checkpoint/shards/load_plan.hpp"
#include "src/base/clock.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {
namespace {

using detail::Json;

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return seconds_since(begin);
}

double median_of(int times, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) seconds.push_back(seconds_of(work));
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

/// The same checkpoint as format 4 described it.
std::string as_format_4(const Manifest& m) {
  Json json = {{"schema_version", 4}, {"digest", ""}};
  json["generation"] = detail::to_json(m.generation, m.point.step);
  json["point"] = detail::to_json(m.point);
  json["facts"] = detail::to_json(m.facts);
  json["tensors"] = Json::array();
  for (std::size_t t = 0; t < m.tensors.size(); ++t)
    json["tensors"].push_back(detail::to_json(m.tensors[t], m.digests[t]));
  json["state_digest"] = digest_text(m.state_digest);
  json["shards"] = Json::array();
  for (std::size_t rank = 0; rank < m.shards.size(); ++rank) {
    Json shard = detail::to_json(m.shards[rank]);
    shard["file"] = m.shards[rank].file;
    shard["pieces"] = Json::array();
    for (const StoredPiece& piece : pieces_of(m, rank))
      shard["pieces"].push_back({piece.span.tensor, piece.span.first, piece.span.count, piece.offset});
    json["shards"].push_back(shard);
  }
  json["index"] = {{"file", index_file_name}, {"bytes", 1}, {"xxh3", std::string(32, '0')}};
  const std::string text = detail::print(json);
  return detail::with_own_digest(4, text.substr(text.find("\"generation\"")));
}

/// A checkpoint of another step, with the same shards.
void make_archive(const fs::path& from, const fs::path& to, Manifest manifest, std::int64_t step) {
  manifest.point.step = step;
  fs::create_directory(to);
  for (const ShardInfo& shard : manifest.shards) fs::create_hard_link(from / shard.file, to / shard.file);
  const std::string text = to_text(manifest);
  files::replace_atomically(to / manifest_file_name, text);
  files::replace_atomically(to / commit_record_name, to_text(commit_record_of(manifest, text, step * 3600)));
}

Json measure(const fs::path& checkpoints, const fs::path& votes, std::int64_t step, Generation generation,
             int world, int archives) {
  std::vector<std::string> payloads;
  for (int rank = 0; rank < world; ++rank) payloads.push_back(files::read_text(votes / std::to_string(rank)));
  const auto by_size = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  Json out = {{"writers", world},
              {"vote_bytes", std::min_element(payloads.begin() + 1, payloads.end(), by_size)->size()},
              {"vote_bytes_of_rank_0", payloads[0].size()}};
  Commit commit(checkpoints, step, generation, world);
  out["add_votes_s"] = seconds_of([&] {
    for (int rank = 0; rank < world; ++rank) commit.add(rank, true, payloads[rank]);
  });
  if (commit.failed()) throw Error(Exit::runtime, "the votes are not usable", commit.why());
  const fs::path step_dir = committed_path(checkpoints, step);
  out["commit_s"] = seconds_of([&] { commit.commit(); });

  const std::string text = read_manifest_text(step_dir);
  const Manifest manifest = parse_manifest(text);
  std::int64_t pieces = 0;
  for (std::size_t rank = 0; rank < manifest.shards.size(); ++rank)
    pieces += std::ssize(pieces_of(manifest, rank));
  out["pieces"] = pieces;
  out["manifest_bytes"] = text.size();
  out["parse_s"] = median_of(9, [&] { parse_manifest(text); });
  out["find_all_pieces_s"] = median_of(9, [&] { where_stored(manifest); });
  const std::string text_4 = as_format_4(manifest);
  out["manifest_bytes_of_format_4"] = text_4.size();
  out["parse_s_of_format_4"] = median_of(3, [&] { parse_manifest(text_4); });

  const Retention keep_all{1, 1e-9};  // microseconds lie between two archives
  const auto tidy_s = [&](int times) {
    return median_of(times, [&] {
      if (!tidy(checkpoints, keep_all, generation, step).empty())
        throw Error(Exit::runtime, "retention has removed an archive");
    });
  };
  out["retention_s_alone"] = tidy_s(5);
  out["archives"] = archives;
  for (int i = archives; i >= 1; --i)
    make_archive(step_dir, committed_path(checkpoints, step - i), manifest, step - i);
  out["retention_s"] = tidy_s(5);
  for (int i = 1; i <= archives; ++i) fs::remove(committed_path(checkpoints, step - i) / commit_record_name);
  out["retention_s_without_records"] = tidy_s(1);
  return out;
}

}  // namespace
}  // namespace holdfast::checkpoint

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  try {
    std::cout << holdfast::checkpoint::measure(argv[1], argv[2], std::atoll(argv[3]),
                                               {std::atoi(argv[4]), std::atoi(argv[5])}, std::atoi(argv[6]),
                                               std::atoi(argv[7]))
                     .dump()
              << "\n";
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
