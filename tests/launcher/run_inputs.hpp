#pragma once
// Small input files of a run: a token file, and the manifest of a checkpoint.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/manifest.hpp"
#include "src/base/as_size.hpp"
#include "src/config/load.hpp"
#include "src/config/numerics.hpp"
#include "src/data/token_file.hpp"

namespace holdfast::test {

/// A token file of `count` tokens, packed into rows of `row` unless that is 0; its path.
inline std::string write_tokens(const std::filesystem::path& path, int vocabulary = 256, int count = 4096,
                                int row = 0, const std::string& tokenizer = "") {
  data::TokenFileWriter writer(path, vocabulary,
                               tokenizer.empty() ? data::Hash128{} : data::hash_bytes(tokenizer), row);
  writer.append(std::vector<std::int32_t>(count, 1));
  writer.finish();
  return path.string();
}

/// A checkpoint with these settings, as far as names and sizes tell.
inline void write_manifest(const std::filesystem::path& folder, const config::RunConfig& config,
                           const config::ModelShape& model) {
  checkpoint::Manifest m;
  m.generation = {1, 1};
  m.point = {10, 4096, 32};
  m.facts = {config::to_toml(model),
             1,
             "no_shard",
             config::arithmetic_of(config) + ", cpu of a test",
             "data",
             1,
             "hash"};
  m.tensors = {{"model/a", 10, 10}};
  m.digests = {1};
  m.state_digest = checkpoint::state_digest(m.tensors, m.digests);
  const std::string root(32, '0');
  m.layout = {1, 1, {{1, 100, 100}}};
  m.shards = {{"shard-00000.h5", 12288, 4096, 8192, 1, {}, root, {}}};
  std::filesystem::create_directories(folder);
  std::ofstream(folder / checkpoint::manifest_file_name) << checkpoint::to_text(m);
  std::ofstream(folder / m.shards.front().file);
  std::filesystem::resize_file(folder / m.shards.front().file, as_size(m.shards.front().bytes));
}

}  // namespace holdfast::test
