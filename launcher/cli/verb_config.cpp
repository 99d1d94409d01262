#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "launcher/cli/job_options.hpp"
#include "launcher/cli/verbs.hpp"
#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/alternatives.hpp"
#include "src/config/bind.hpp"
#include "src/config/foreign_names.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;

json to_json(const config::Value& value) {
  return std::visit(
      [](const auto& v) -> json {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, config::Unusable>)
          return nullptr;
        else
          return v;
      },
      value);
}

void show_json(const config::Loaded& loaded, bool origin) {
  json settings = json::object();
  for (const auto& s : config::run_settings()) {
    json value = to_json(s.get(loaded.config));
    settings[s.table][s.key] =
        origin ? json{{"value", std::move(value)}, {"origin", loaded.origin.at(s.name())}} : std::move(value);
  }
  std::cout << json_text(json{{"schema_version", 1}, {"settings", std::move(settings)}}, 2) << "\n";
}

void print_header(std::string& current, const std::string& table) {
  if (current == table) return;
  std::cout << fmt::format("{}[{}]\n", current.empty() ? "" : "\n", table);
  current = table;
}

/// TOML that `--set` and job files understand; with `origin` each line ends with where its value comes from.
void show_text(const config::Loaded& loaded, bool origin) {
  std::string table;
  for (const auto& s : config::run_settings()) {
    if (config::is_replaced(loaded, s.name())) continue;
    print_header(table, s.table);
    const std::string line = s.key + " = " + config::spell(s.get(loaded.config));
    if (origin)
      std::cout << fmt::format("{:<40}  # {}\n", line, loaded.origin.at(s.name()));
    else
      std::cout << fmt::format("{}\n", line);
  }
}

using Setting = config::Setting<config::RunConfig>;

/// Those whose name or meaning holds `pattern`. Throws Error (usage) when there is none.
std::vector<const Setting*> keys_of(const std::string& pattern) {
  std::vector<const Setting*> out;
  std::vector<std::string> names;
  for (const Setting& s : config::run_settings()) {
    names.push_back(s.name());
    if (s.name().find(pattern) != std::string::npos || s.help.find(pattern) != std::string::npos)
      out.push_back(&s);
  }
  if (!out.empty()) return out;
  std::string hint = config::foreign_suggestion(pattern.substr(pattern.rfind('.') + 1));
  if (const std::string near = nearest_name(pattern, names); hint.empty() && !near.empty())
    hint = "Did you mean " + near + "?";
  throw Error(Exit::usage, "no setting is called '" + pattern + "'",
              "and the meaning of none holds that text",
              hint.empty() ? "'holdfast config keys' lists all" : hint);
}

void list_keys(const std::vector<const Setting*>& keys) {
  const config::RunConfig defaults;
  std::string table;
  for (const Setting* s : keys) {
    print_header(table, s->table);
    const std::string choices = s->choices.empty() ? "" : fmt::format(" ({})", fmt::join(s->choices, ", "));
    std::cout << fmt::format("{:<40}  # {}{}\n", s->key + " = " + config::spell(s->get(defaults)), s->help,
                             choices);
  }
}

void list_keys_as_json(const std::vector<const Setting*>& keys) {
  const config::RunConfig defaults;
  json list = json::array();
  for (const Setting* s : keys)
    list.push_back({{"name", s->name()},
                    {"default", to_json(s->get(defaults))},
                    {"choices", s->choices},
                    {"help", s->help}});
  std::cout << json_text(json{{"schema_version", 1}, {"keys", std::move(list)}}, 2) << "\n";
}

}  // namespace

void add_config(CLI::App& app, int&) {
  auto* verb = app.add_subcommand("config", "Show settings and where they come from");
  verb->require_subcommand(1);

  auto* show = verb->add_subcommand("show", "Print every setting of a job as TOML");
  const auto options = std::make_shared<JobOptions>();
  const auto origin = std::make_shared<bool>(false), as_json = std::make_shared<bool>(false);
  options->add_to(*show);
  show->add_flag("--origin", *origin, "Say for each setting: flag, environment, file with line, or default");
  show->add_flag("--json", *as_json, "Print JSON");
  show->callback(
      [=] { *as_json ? show_json(options->load(), *origin) : show_text(options->load(), *origin); });

  auto* keys = verb->add_subcommand("keys", "Print settings with their defaults and meanings");
  const auto pattern = std::make_shared<std::string>();
  keys->add_option("PATTERN", *pattern, "Only those whose name or meaning holds this text");
  keys->add_flag("--json", *as_json, "Print JSON");
  keys->callback([=] { *as_json ? list_keys_as_json(keys_of(*pattern)) : list_keys(keys_of(*pattern)); });
}

}  // namespace holdfast::launcher
