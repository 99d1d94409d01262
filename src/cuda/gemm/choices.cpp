#include "src/cuda/gemm/choices.hpp"

#include <fmt/core.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::cuda {

namespace {
using Json = nlohmann::ordered_json;
constexpr int format = 1;

/// The whole numbers of an algorithm and their names in the text.
struct Field {
  const char* name;
  int Algorithm::*member;
};
constexpr Field fields[] = {
    {"algorithm", &Algorithm::algorithm}, {"tile", &Algorithm::tile},
    {"stages", &Algorithm::stages},       {"split_k", &Algorithm::split_k},
    {"reduction", &Algorithm::reduction}, {"swizzle", &Algorithm::swizzle},
    {"custom", &Algorithm::custom},       {"inner_shape", &Algorithm::inner_shape},
    {"cluster", &Algorithm::cluster},
};

std::string hex_of(const std::array<std::uint64_t, 8>& state) {
  std::string text;
  for (const std::uint64_t word : state) text += fmt::format("{:016x}", word);
  return text;
}

Error unreadable(const std::string& why) {
  return {Exit::usage, "the choices of algorithms (tuning.json) cannot be read", why,
          "Restore the file, or start a new run?"};
}

std::array<std::uint64_t, 8> state_of(const std::string& text, const std::string& key) {
  std::array<std::uint64_t, 8> state{};
  bool good = text.size() == 16 * state.size();
  for (std::size_t i = 0; good && i < state.size(); ++i) {
    const char* first = text.data() + 16 * i;
    const auto [end, error] = std::from_chars(first, first + 16, state[i], 16);
    good = error == std::errc{} && end == first + 16;
  }
  if (!good) throw unreadable(fmt::format("the state of \"{}\" is not 128 hex digits", key));
  return state;
}

std::uint64_t hash_text(const std::string& text) { return hash_name(text.data(), text.size()); }
}  // namespace

std::string print_choices(const Choices& choices) {
  Json entries = Json::object();
  for (const auto& [key, chosen] : choices.entries) {
    Json entry;
    for (const Field& field : fields) entry[field.name] = chosen.*field.member;
    entry["workspace"] = chosen.workspace;
    entry["state"] = hex_of(chosen.state);
    entry["microseconds"] = chosen.microseconds;
    entries[key] = entry;
  }
  const Json device = {{"name", choices.device},
                       {"compute_capability", choices.compute_capability},
                       {"multiprocessors", choices.multiprocessors}};
  const Json text = {{"format", format},
                     {"device", device},
                     {"library", choices.library},
                     {"deterministic", choices.deterministic},
                     {"entries", entries}};
  return text.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Choices parse_choices(std::string_view text) {
  try {
    const Json json = json_from<Json>(text);
    if (json.at("format").get<int>() != format)
      throw unreadable(fmt::format("format {} is not {}", json.at("format").get<int>(), format));
    Choices choices;
    const Json& device = json.at("device");
    choices.device = device.at("name").get<std::string>();
    choices.compute_capability = device.at("compute_capability").get<std::string>();
    choices.multiprocessors = device.at("multiprocessors").get<int>();
    choices.library = json.at("library").get<std::string>();
    choices.deterministic = json.at("deterministic").get<bool>();
    for (const auto& [key, entry] : json.at("entries").items()) {
      Algorithm chosen;
      for (const Field& field : fields) chosen.*field.member = entry.at(field.name).get<int>();
      chosen.workspace = entry.at("workspace").get<std::int64_t>();
      chosen.microseconds = entry.at("microseconds").get<double>();
      chosen.state = state_of(entry.at("state").get<std::string>(), key);
      choices.entries.emplace(key, chosen);
    }
    return choices;
  } catch (const Json::exception& error) {
    throw unreadable(error.what());
  }
}

void require_same_place(const Choices& made, const Choices& here) {
  const auto refuse = [](const std::string& what, const std::string& then, const std::string& now) {
    throw Error(Exit::usage, "the choices of algorithms (tuning.json) were made for another " + what,
                fmt::format("then: {}; here: {}", then, now),
                "Continue on what the run began with, or start a new run?");
  };
  const auto device = [](const Choices& c) {
    return fmt::format("{}, compute capability {}, {} multiprocessors", c.device, c.compute_capability,
                       c.multiprocessors);
  };
  if (device(made) != device(here)) refuse("device", device(made), device(here));
  if (made.library != here.library) refuse("library", made.library, here.library);
  if (made.deterministic != here.deterministic) {
    const auto mode = [](const Choices& c) { return c.deterministic ? "deterministic" : "free"; };
    refuse("mode", mode(made), mode(here));
  }
}

std::string hash_choices(const Choices& choices) {
  std::uint64_t sum = hash_text(fmt::format("{}|{}|{}|{}|{}", choices.device, choices.compute_capability,
                                            choices.multiprocessors, choices.library, choices.deterministic));
  for (const auto& [key, chosen] : choices.entries) {
    std::string value;
    for (const Field& field : fields) value += fmt::format("{},", chosen.*field.member);
    value += fmt::format("{},{}", chosen.workspace, hex_of(chosen.state));
    sum = combine_digests(sum, hash_text(key), hash_text(value));
  }
  return fmt::format("{:016x}", sum);
}

std::string hash_choices(std::string_view text) {
  return text.empty() ? std::string() : hash_choices(parse_choices(text));
}

}  // namespace holdfast::cuda
