#include "checkpoint/index/durable_record.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/index/manifest.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::checkpoint {
namespace {

struct Record {
  int attempt = 0;
  std::set<std::int64_t> steps;
};

std::string text_of(const fs::path& file) {
  try {
    return files::read_text(file);
  } catch (const Error& e) {
    throw Unreadable("the record " + file.string(), e.why());
  }
}

std::optional<Record> read(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    throw Unreadable("the record " + file.string(), std::strerror(errno));
  }
  const auto json = json_from(text_of(file));
  try {
    return Record{json.at("attempt").get<int>(), json.at("steps").get<std::set<std::int64_t>>()};
  } catch (const nlohmann::json::exception& e) {
    throw Error(Exit::no_requeue, "the record " + file.string() + " is damaged", e.what(),
                "Remove it, if all checkpoints of the run are in their folder?");
  }
}

}  // namespace

std::vector<std::int64_t> recorded_steps(const fs::path& file) {
  const auto record = read(file);
  if (!record) return {};
  return {record->steps.begin(), record->steps.end()};
}

std::optional<int> recorded_attempt(const fs::path& file) {
  const auto record = read(file);
  return record ? std::optional(record->attempt) : std::nullopt;
}

void record_steps(const fs::path& file, int attempt, std::span<const std::int64_t> durable,
                  std::span<const std::int64_t> removed) {
  Record record = read(file).value_or(Record{});
  record.attempt = std::max(record.attempt, attempt);
  record.steps.insert(durable.begin(), durable.end());
  for (const std::int64_t step : removed) record.steps.erase(step);
  const nlohmann::ordered_json json = {
      {"schema_version", 1}, {"attempt", record.attempt}, {"steps", record.steps}};
  files::replace_atomically(file, json.dump() + "\n");
}

}  // namespace holdfast::checkpoint
