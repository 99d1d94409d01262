#include "src/config/peft_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::config {
namespace {

using Json = nlohmann::json;

constexpr int deepest_peft = 16;

/// Keys that are read here, or change nothing of what adapters compute. Whatever else says something asks for
/// another computation: versions of peft to come will have more of those.
constexpr std::array harmless = {"alpha_pattern",
                                 "auto_mapping",
                                 "base_model_name_or_path",
                                 "bias",
                                 "ensure_weight_tying",
                                 "inference_mode",
                                 "lora_alpha",
                                 "lora_dropout",
                                 "megatron_core",
                                 "init_lora_weights",
                                 "eva_config",
                                 "peft_type",
                                 "peft_version",
                                 "r",
                                 "rank_pattern",
                                 "qalora_group_size",
                                 "revision",
                                 "target_modules",
                                 "task_type",
                                 "use_rslora"};

/// Ways to begin that leave the base as it is. Others take away from its weights what the adapters begin
/// with.
constexpr std::array gentle_beginnings = {"gaussian", "eva", "orthogonal"};

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

bool says_nothing(const Json& value) {
  return value.is_null() || value == false || value == "none" ||
         ((value.is_object() || value.is_array()) && value.empty());
}

class PeftReader {
 public:
  PeftReader(const Json& json, const std::string& path) : json_(json), path_(path) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Exit::usage, "cannot use the adapters of " + path_, why);
  }
  const Json& get(const char* key) const {
    static const Json none;
    const auto found = json_.find(key);
    return found == json_.end() ? none : *found;
  }
  double number(const char* key) const {
    const Json& value = get(key);
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      refuse(fmt::format("{} is {}, not a number", key, shown(value)));
    return value.get<double>();
  }

 private:
  const Json& json_;
  const std::string& path_;
};

void refuse_what_we_lack(const PeftReader& in, const Json& json) {
  if (in.get("peft_type") != "LORA")
    in.refuse(fmt::format("peft_type is {}; Holdfast has LORA", shown(in.get("peft_type"))));
  for (const char* key : {"bias", "rank_pattern", "alpha_pattern"})
    if (!says_nothing(in.get(key)))
      in.refuse(fmt::format("{} is {}; all layers have one rank and alpha here, and no biases", key,
                            shown(in.get(key))));
  for (const auto& [key, value] : json.items())
    if (std::ranges::find(harmless, key) == harmless.end() && !says_nothing(value))
      in.refuse(fmt::format("{} is {}, which is not what Holdfast computes", quoted(key), shown(value)));
  const Json& beginning = in.get("init_lora_weights");
  if (beginning.is_string() &&
      std::ranges::find(gentle_beginnings, beginning.get<std::string>()) == gentle_beginnings.end())
    in.refuse(
        fmt::format("init_lora_weights is {}: these adapters belong to weights that were changed for them",
                    shown(beginning)));
}

std::vector<std::string> targets_of(const PeftReader& in) {
  const Json& modules = in.get("target_modules");
  if (!modules.is_array() || modules.empty())
    in.refuse(fmt::format("target_modules is {}, not a list of linear layers", shown(modules)));
  std::vector<std::string> out;
  for (const Json& module : modules)
    if (!module.is_string() ||
        std::ranges::find(names_of_projections, module.get<std::string>()) == names_of_projections.end())
      in.refuse(fmt::format("target_modules has {}; Holdfast has {}", shown(module),
                            fmt::join(names_of_projections, ", ")));
  for (const char* name : names_of_projections)  // peft keeps a set
    if (std::ranges::find(modules, name) != modules.end()) out.emplace_back(name);
  return out;
}

}  // namespace

AdapterFacts parse_peft_config(std::string_view text, const std::string& path) {
  Json json;
  try {
    const auto first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    json = parse_strict_json(text.substr(first), deepest_peft);
  } catch (const NotStrictJson& wrong) {
    throw Error(Exit::usage, "cannot use the adapters of " + path, std::string("it ") + wrong.what());
  }
  const PeftReader in(json, path);
  refuse_what_we_lack(in, json);
  AdapterFacts out;
  const Json& rank = in.get("r");
  if (!rank.is_number_integer() || rank < 1 || rank > most_rank)
    in.refuse(fmt::format("r is {}, not a rank from 1 to {}", shown(rank), most_rank));
  out.lora.rank = rank.get<int>();
  out.lora.alpha = in.number("lora_alpha");
  // There adapters are scaled by alpha / sqrt(r).
  if (!says_nothing(in.get("use_rslora"))) out.lora.alpha *= std::sqrt(static_cast<double>(out.lora.rank));
  out.lora.dropout = in.get("lora_dropout").is_null() ? 0 : in.number("lora_dropout");
  out.lora.targets = targets_of(in);
  if (in.get("base_model_name_or_path").is_string())
    out.base = in.get("base_model_name_or_path").get<std::string>();
  try {
    adapters_of(out.lora);
  } catch (const Error& wrong) {
    in.refuse(wrong.problem() + " (" + wrong.why() + ")");
  }
  return out;
}

std::string peft_config_text(const AdapterFacts& facts) {
  const Json base = facts.base.empty() ? Json(nullptr) : Json(facts.base);
  const Json json = {{"peft_type", "LORA"},
                     {"task_type", "CAUSAL_LM"},
                     {"base_model_name_or_path", base},
                     {"r", facts.lora.rank},
                     {"lora_alpha", facts.lora.alpha},
                     {"lora_dropout", facts.lora.dropout},
                     {"target_modules", facts.lora.targets},
                     {"bias", "none"},
                     {"fan_in_fan_out", false},
                     {"inference_mode", true},
                     {"init_lora_weights", true},
                     {"modules_to_save", nullptr},
                     {"revision", nullptr}};
  return json.dump(2) + "\n";
}

}  // namespace holdfast::config
