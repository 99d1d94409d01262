#include "checkpoint/index/safetensors_index.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::checkpoint::safetensors {
namespace {

constexpr int deepest_index = 4;

bool lies_beside(const std::string& file) {
  return !file.empty() && file != "." && file != ".." && file.find('/') == std::string::npos &&
         file.find('\0') == std::string::npos;
}

}  // namespace

WeightMap parse_index(std::string_view text, const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Exit::usage, path + " is not a usable index of safetensors files", why);
  };
  nlohmann::json json;
  try {
    const auto first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    json = parse_strict_json(text.substr(first), deepest_index);
  } catch (const NotStrictJson& wrong) {
    refuse(std::string("it ") + wrong.what());
  }
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) refuse("it has no weight_map");
  if (map->empty()) refuse("its weight_map names no tensor");
  WeightMap out;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) refuse("the file of " + quoted(tensor) + " is not a text");
    const auto name = file.get<std::string>();
    if (!lies_beside(name)) refuse(quoted(name) + " is not a file beside it");
    out[tensor] = name;
  }
  return out;
}

std::string index_text(const WeightMap& files, std::int64_t bytes) {
  const nlohmann::json json = {{"metadata", {{"total_size", bytes}}}, {"weight_map", files}};
  return json.dump(2) + "\n";
}

std::string part_name(int number, int parts) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", number, parts);
}

}  // namespace holdfast::checkpoint::safetensors
