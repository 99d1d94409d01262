// load() fills a RunConfig in the order of increasing precedence: the entries of the job file in their order,
// then HOLDFAST_SET_ variables (not for a resolved file), then --set. Each step notes the origin of the keys
// that it sets; of two settings that say the same, settle_alternatives() then keeps one by these origins. An
// ErrorList collects what is wrong on the way, and all of it is thrown together at the end. Model and cluster
// files, and [adapters], are read by the same functions, but there the first mistake is thrown.
//
// apply() is where an entry finds its Setting: fit() has checked type and limits before anything is assigned,
// and an unknown key is refused with a suggestion(). What must be given, require() asks for afterwards.
// to_toml() writes by the same tables, so every setting that can be read is also written.
#include "src/config/load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/base/as_size.hpp"
#include "src/base/env.hpp"
#include "src/base/errors.hpp"
#include "src/config/alternatives.hpp"
#include "src/config/bind.hpp"
#include "src/config/foreign_names.hpp"
#include "src/config/hf_config.hpp"

namespace holdfast::config {
namespace {

constexpr const char* adapters_table = "adapters";
constexpr std::string_view variable_prefix = "HOLDFAST_SET_";

template <class Struct>
const Setting<Struct>* find(const std::vector<Setting<Struct>>& settings, std::string_view name) {
  for (const auto& s : settings)
    if (s.name() == name) return &s;
  return nullptr;
}

template <class Struct>
std::vector<std::string> tables_of(const std::vector<Setting<Struct>>& settings) {
  std::vector<std::string> out;
  for (const auto& s : settings)
    if (out.empty() || out.back() != s.table) out.push_back(s.table);
  return out;
}

/// What a mistyped name may have been: the same key of another table, another trainer's word, a similar key
/// of the same table, a key of a table with a similar name; else the list of what there is.
template <class Struct>
std::string suggestion(const std::vector<Setting<Struct>>& settings, const std::string& table,
                       const std::string& key) {
  const auto did_you_mean = [](const std::string& name) { return "Did you mean " + name + "?"; };
  std::vector<std::string> keys;
  for (const auto& s : settings)
    if (s.table == table) keys.push_back(s.key);
  for (const auto& s : settings)
    if (s.key == key) return did_you_mean(s.name());
  if (const auto elsewhere = foreign_suggestion(key.empty() ? table : key); !elsewhere.empty())
    return elsewhere;
  if (const auto near = nearest_name(key, keys); !near.empty()) return did_you_mean(table + "." + near);
  if (!keys.empty()) return fmt::format("[{}] has {}", table, fmt::join(keys, ", "));
  const auto tables = tables_of(settings);
  if (const auto near = nearest_name(table, tables); !near.empty()) {
    if (key.empty()) return did_you_mean(near);
    const auto inside = suggestion(settings, near, key);
    return inside.starts_with("Did") ? inside : did_you_mean(near + "." + key);
  }
  return fmt::format("The tables are {}", fmt::join(tables, ", "));
}

/// The header of a table that we do not have, with keys that another trainer has: they say more than it does.
bool is_foreign_table(const Document& document, const Entry& header) {
  if (!header.key.empty()) return false;
  const auto known = tables_of(run_settings());
  if (std::find(known.begin(), known.end(), header.table) != known.end()) return false;
  return std::any_of(document.entries.begin(), document.entries.end(), [&](const Entry& entry) {
    return entry.table == header.table && !entry.key.empty() && !foreign_suggestion(entry.key).empty();
  });
}

template <class Struct>
[[noreturn]] void refuse_unknown(const std::vector<Setting<Struct>>& settings, const std::string& table,
                                 const std::string& key, const std::string& where) {
  const bool is_table = key.empty();
  const std::string name = is_table || table.empty() ? table + key : table + "." + key;
  throw Error(Exit::usage, (is_table ? "unknown table " : "unknown key ") + name, where,
              suggestion(settings, table, key));
}

/// Puts one entry into `target`; the setting it went to, or null for the header of a known table.
template <class Struct>
const Setting<Struct>* apply(Struct& target, const std::vector<Setting<Struct>>& settings, const Entry& entry,
                             const std::string& where) {
  const auto tables = tables_of(settings);
  const bool known_table = std::find(tables.begin(), tables.end(), entry.table) != tables.end();
  if (entry.table.empty() && std::find(tables.begin(), tables.end(), entry.key) != tables.end())
    throw Error(Exit::usage, entry.key + " is a table, not a value", where,
                "Write [" + entry.key + "] on a line of its own?");
  if (entry.key.empty() && known_table) return nullptr;
  const auto* setting = known_table ? find(settings, entry.table + "." + entry.key) : nullptr;
  if (!setting) refuse_unknown(settings, entry.table, entry.key, where);
  setting->set(target, fit(*setting, entry.value, where));
  return setting;
}

void refuse_repeated(const Document& document, const Entry& entry) {
  if (entry.element >= 0)
    throw Error(Exit::usage, "[[" + entry.table + "]] may not be repeated", document.where(entry),
                "Write [" + entry.table + "]?");
}

void set_from_text(Loaded& loaded, const std::string& name, const std::string& text, const std::string& where,
                   const std::string& origin) {
  const auto* setting = find(run_settings(), name);
  if (!setting) {
    const auto dot = name.find('.');
    if (dot == std::string::npos) refuse_unknown(run_settings(), "", name, where);
    refuse_unknown(run_settings(), name.substr(0, dot), name.substr(dot + 1), where);
  }
  setting->set(loaded.config, fit(*setting, from_text(*setting, text), where));
  loaded.origin[name] = origin;
}

/// HOLDFAST_SET_<TABLE>__<KEY>; a variable with this prefix that names no setting is an error like a mistyped
/// key.
void set_from_environment(Loaded& loaded) {
  for (const auto& variable : env::all()) {
    if (!variable.starts_with(variable_prefix)) continue;
    const auto equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    std::vector<std::string> known;
    const Setting<RunConfig>* setting = nullptr;
    for (const auto& s : run_settings()) {
      known.push_back(variable_of(s));
      if (known.back() == name) setting = &s;
    }
    if (!setting) {
      const std::string near = nearest_name(name.substr(variable_prefix.size()), [&] {
        std::vector<std::string> short_names;
        for (const auto& k : known) short_names.push_back(k.substr(variable_prefix.size()));
        return short_names;
      }());
      throw Error(Exit::usage, "the environment variable " + name + " names no setting",
                  "HOLDFAST_SET_<TABLE>__<KEY> does",
                  near.empty() ? "Unset it?" : "Did you mean " + std::string(variable_prefix) + near + "?");
    }
    set_from_text(loaded, setting->name(), variable.substr(equals + 1), "environment " + name,
                  "environment " + name);
  }
}

template <class Struct>
void write(std::string& out, const std::vector<Setting<Struct>>& settings, const Struct& from,
           bool repeated = false) {
  std::string table;
  for (const auto& s : settings) {
    if (s.table != table) {
      table = s.table;
      out += repeated ? "\n[[" + table + "]]\n" : "\n[" + table + "]\n";
    }
    out += s.key + " = " + spell(s.get(from)) + "\n";
  }
}

void require(const Document& document, const std::string& table, const std::vector<std::string>& keys,
             int element = -1) {
  for (const auto& key : keys) {
    const bool there = std::any_of(document.entries.begin(), document.entries.end(), [&](const Entry& e) {
      return e.table == table && e.key == key && e.element == element;
    });
    if (!there)
      throw Error(Exit::usage, fmt::format("{}.{} is missing", table, key),
                  element < 0 ? document.name
                              : fmt::format("{}, [[{}]] number {}", document.name, table, element + 1),
                  "Add it?");
  }
}

template <class Struct>
void apply_element(std::vector<Struct>& list, const std::vector<Setting<Struct>>& settings,
                   const Document& document, const Entry& entry) {
  if (entry.element < 0)
    throw Error(Exit::usage, "[" + entry.table + "] is a list of tables", document.where(entry),
                "Write [[" + entry.table + "]]?");
  if (entry.element >= static_cast<int>(list.size())) list.resize(as_size(entry.element) + 1);
  apply(list[entry.element], settings, entry, document.where(entry));
}

/// The table of GPUs must say each of gpus_per_node exactly once; on a cluster without GPUs it may be left
/// out.
void complete_gpu_table(ClusterFacts& facts, const std::string& file) {
  if (facts.gpus.empty() && facts.gpu == "none")
    for (int i = 0; i < facts.gpus_per_node; ++i) facts.gpus.push_back({i, "", "", 0, i});
  std::sort(facts.gpus.begin(), facts.gpus.end(),
            [](const GpuFacts& a, const GpuFacts& b) { return a.gpu < b.gpu; });
  bool complete = static_cast<int>(facts.gpus.size()) == facts.gpus_per_node;
  for (int i = 0; complete && i < facts.gpus_per_node; ++i) complete = facts.gpus[i].gpu == i;
  if (!complete)
    throw Error(Exit::usage,
                fmt::format("the [[gpu]] tables do not list GPUs 0 to {} once each", facts.gpus_per_node - 1),
                file);
}

ModelShape model_of(const Document& document) {
  ModelShape shape;
  shape.name = std::filesystem::path(document.name).stem().string();
  for (const auto& entry : document.entries) {
    refuse_repeated(document, entry);
    apply(shape, model_settings(), entry, document.where(entry));
  }
  require(document, "model", {"vocabulary", "width", "layers", "heads", "kv_heads", "ffn", "max_sequence"});
  return shape;
}

void set_one(Loaded& out, const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos)
    throw Error(Exit::usage, "--set " + text + " gives no value", "it has no '='",
                "Write --set table.key=value?");
  const std::string name = text.substr(0, equals);
  set_from_text(out, name, text.substr(equals + 1), "--set " + name, "flag");
}

void set_from_outside(Loaded& out, const std::vector<std::string>& sets, bool environment,
                      ErrorList& errors) {
  if (environment) errors.of([&] { set_from_environment(out); });
  for (const auto& text : sets) errors.of([&] { set_one(out, text); });
}

/// Keys of a table that we do not have are passed over once that was said.
void set_from_document(Loaded& out, const Document& document, bool& resolved, ErrorList& errors) {
  std::set<std::string> unknown;
  for (const auto& entry : document.entries) {
    if (is_foreign_table(document, entry) || unknown.contains(entry.table)) continue;
    const bool fine = errors.of([&] {
      refuse_repeated(document, entry);
      if (entry.table.empty() && entry.key == "resolved") {
        resolved = entry.value == Value(true);
      } else if (const auto* setting = apply(out.config, run_settings(), entry, document.where(entry))) {
        out.origin[setting->name()] = document.where(entry);
      }
    });
    if (!fine && entry.key.empty()) unknown.insert(entry.table);
  }
}

/// A name of configs/models that happens to be a folder here is still that name.
std::optional<std::filesystem::path> hf_config_of(const std::string& name_or_path) {
  if (name_or_path.find('/') == std::string::npos && !name_or_path.ends_with(".json")) return {};
  return find_hf_config(name_or_path);
}

}  // namespace

Loaded load_defaults(const std::vector<std::string>& sets) {
  Loaded out;
  for (const auto& s : run_settings()) out.origin[s.name()] = "default";
  ErrorList errors;
  set_from_outside(out, sets, true, errors);
  settle_alternatives(out, false, errors);
  errors.refuse();
  return out;
}

Loaded load(const std::filesystem::path& file, const std::vector<std::string>& sets) {
  Loaded out;
  for (const auto& s : run_settings()) out.origin[s.name()] = "default";
  const Document document = read_document(find_config("jobs", file.string()));
  bool resolved = false;
  ErrorList errors;
  set_from_document(out, document, resolved, errors);
  set_from_outside(out, sets, !resolved, errors);
  settle_alternatives(out, resolved, errors);
  errors.refuse();
  return out;
}

ModelShape load_model(const std::string& name_or_path) {
  if (const auto json = hf_config_of(name_or_path)) return load_hf_config(*json).shape;
  return model_of(read_document(find_config("models", name_or_path)));
}

ModelShape parse_model(const std::string& toml, const std::string& name) {
  Document document = parse_document(toml, name);
  std::erase_if(document.entries, [](const Entry& entry) { return entry.table == adapters_table; });
  ModelShape out = model_of(document);
  if (const auto adapters = parse_adapters(toml, name)) out.adapters = adapters_of(adapters->lora);
  return out;
}

std::optional<AdapterFacts> parse_adapters(const std::string& toml, const std::string& name) {
  const Document document = parse_document(toml, name);
  std::optional<AdapterFacts> out;
  for (const auto& entry : document.entries) {
    if (entry.table != adapters_table) continue;
    refuse_repeated(document, entry);
    if (!out) out.emplace();
    apply(*out, adapter_settings(), entry, document.where(entry));
  }
  if (out) require(document, adapters_table, {"rank", "alpha", "targets"});
  return out;
}

ClusterFacts load_cluster(const std::string& name_or_path) {
  const Document document = read_document(find_config("clusters", name_or_path));
  ClusterFacts facts;
  facts.name = std::filesystem::path(document.name).stem().string();
  for (const auto& entry : document.entries) {
    if (entry.table == "unit") {
      apply_element(facts.scalable_units, scalable_unit_settings(), document, entry);
    } else if (entry.table == "gpu") {
      apply_element(facts.gpus, gpu_settings(), document, entry);
    } else {
      refuse_repeated(document, entry);
      apply(facts, cluster_settings(), entry, document.where(entry));
    }
  }
  require(document, "cluster", {"gpu", "gpus_per_node", "control_interface"});
  if (facts.scalable_units.empty())
    throw Error(Exit::usage, "a cluster has no nodes", document.name, "Add a [[unit]] with name and nodes?");
  for (int i = 0; i < static_cast<int>(facts.scalable_units.size()); ++i)
    require(document, "unit", {"name", "nodes"}, i);
  for (int i = 0; i < static_cast<int>(facts.gpus.size()); ++i) require(document, "gpu", {"gpu", "rail"}, i);
  complete_gpu_table(facts, document.name);
  if (!facts.gpu_job_mapping.empty() && !facts.gpu_job_mapping.starts_with('/'))
    throw Error(Exit::usage, "cluster.gpu_job_mapping is no absolute path",
                "it is '" + facts.gpu_job_mapping + "' in " + document.name,
                "Write what dcgm-exporter is given as --hpc-job-mapping-dir?");
  return facts;
}

std::string to_toml(const RunConfig& config) {
  std::string out =
      "# Every setting of the run, as it was resolved at submission: flag, environment, file, default.\n"
      "resolved = true  # HOLDFAST_SET_* variables do not change this file's settings any more\n";
  write(out, run_settings(), config);
  return out;
}

std::vector<SettingChange> changed_settings(const RunConfig& before, const RunConfig& now) {
  std::vector<SettingChange> out;
  for (const auto& setting : run_settings()) {
    const Value was = setting.get(before), is = setting.get(now);
    if (was != is) out.push_back({setting.name(), spell(was), spell(is)});
  }
  return out;
}

std::string changed_course(const RunConfig& before, const RunConfig& now) {
  std::string out;
  for (const SettingChange& change : changed_settings(before, now))
    if (change.key.starts_with("optim.") || change.key.starts_with("guard.") || change.key == "train.steps")
      out += fmt::format("{}{} is {}, and was {}", out.empty() ? "" : "; ", change.key, change.now,
                         change.before);
  return out;
}

std::string to_toml(const ModelShape& shape) {
  std::string out = "# The shape of the run's model, as it was read at submission.\n";
  write(out, model_settings(), shape);
  return out;
}

std::string to_toml(const AdapterFacts& facts) {
  std::string out;
  write(out, adapter_settings(), facts);
  return out;
}

std::string to_toml(const ClusterFacts& facts) {
  std::string out = "# What was known of the cluster at submission.\n";
  write(out, cluster_settings(), facts);
  for (const auto& unit : facts.scalable_units) write(out, scalable_unit_settings(), unit, true);
  for (const auto& gpu : facts.gpus) write(out, gpu_settings(), gpu, true);
  return out;
}

}  // namespace holdfast::config
