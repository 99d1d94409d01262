// read_options() goes through the words behind the launcher's name: each option is looked up in the table of
// the launcher (option_called() takes '_' for '-' and, where the launcher does, abbreviations), and
// take_option() does what its Fate says. The first word that is no option begins the script, which gets all
// that follows. For accelerate find_file() then reads the file of options, the one that was named or the
// usual one, if there is one.
//
// No option is ignored silently: one that is in no table is refused, and so is a value that cannot be kept;
// one that is not needed is listed with the reason. The file comes last: take_file() leaves out its numbers
// of nodes and ranks, and its variables, where options have set them. It takes the keys that are named there,
// and refuses a distributed_type that needs more than ranks, and every key *_config that is not empty. Files
// and variables are read through `outside` alone.
#include "launcher/job/launcher_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher::others {
namespace {

std::string upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

/// The option without its dashes, '-' for '_'.
std::string option_name(string_view word) {
  const auto begin = word.find_first_not_of('-');
  std::string name(begin == string_view::npos ? "" : word.substr(begin));
  std::ranges::replace(name, '_', '-');
  return name;
}

bool names_option(const Option& option, string_view name) {
  const std::string all = fmt::format(" {} ", option.names);
  return all.find(fmt::format(" {} ", name)) != std::string::npos;
}
bool begins_a_name(const Option& option, string_view begin) {
  return begin.size() > 1 &&
         fmt::format(" {}", option.names).find(fmt::format(" {}", begin)) != std::string::npos;
}

const Option* option_called(const Launcher& launcher, const std::string& name) {
  for (const Option& option : launcher.options)
    if (names_option(option, name)) return &option;
  const Option* begun = nullptr;
  for (const Option& option : launcher.options)
    if (launcher.abbreviates && begins_a_name(option, name)) {
      if (begun) return nullptr;
      begun = &option;
    }
  return begun;
}

[[noreturn]] void refuse_option(const Launcher& launcher, const std::string& word, string_view instead) {
  throw Error(Exit::usage, fmt::format("{}'s option {} cannot be kept", launcher.name, word),
              "Holdfast takes the launcher's place, and starts the ranks itself",
              fmt::format("{}?", instead));
}

int number_in(const Launcher& launcher, const std::string& option, string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1)
    throw Error(Exit::usage, fmt::format("{}'s option {} has no number", launcher.name, option),
                fmt::format("'{}'", text));
  return value;
}

void take_nodes(LauncherCommand& out, const Launcher& launcher, const std::string& option,
                const std::string& value) {
  const auto colon = value.find(':');
  out.nodes =
      number_in(launcher, option, string_view(value).substr(colon == std::string::npos ? 0 : colon + 1));
  if (colon == std::string::npos) return;
  out.min_nodes = number_in(launcher, option, string_view(value).substr(0, colon));
  if (*out.min_nodes == *out.nodes) out.min_nodes.reset();
}

void take_option(LauncherCommand& out, const Launcher& launcher, const Option& option,
                 const std::string& word, const std::string& value) {
  switch (option.fate) {
    case Fate::nodes:
      return take_nodes(out, launcher, word, value);
    case Fate::per_node:
      if (value == "gpu" || value == "auto" || value == "-1")
        out.per_node = 0;
      else if (value == "cpu" || value == "xpu")
        refuse_option(launcher, word + " " + value, "Write the number");
      else
        out.per_node = number_in(launcher, word, value);
      return;
    case Fate::total:
      out.total = number_in(launcher, word, value);
      return;
    case Fate::gpus:
      if (value == "all") return;
      out.environment.push_back("CUDA_VISIBLE_DEVICES=" + value);
      if (!out.per_node) out.per_node = static_cast<int>(std::ranges::count(value, ',')) + 1;
      return;
    case Fate::variable:
      if (value == "fp8") refuse_option(launcher, word + " " + value, in_the_script);
      // As accelerate spells the backend's name.
      out.environment.push_back(
          fmt::format("{}={}", option.text, option.text.ends_with("_BACKEND") ? upper(value) : value));
      return;
    case Fate::flag:
      out.environment.emplace_back(option.text);
      return;
    case Fate::dropped:
      out.dropped.emplace_back(word, option.text);
      return;
    case Fate::default_only:
      if (value != option.text)
        refuse_option(launcher, word + " " + value, "All ranks of a run are one program: leave it out");
      return;
    case Fate::refused:
      refuse_option(launcher, word, option.text);
    case Fate::module:
    case Fate::no_python:
    case Fate::no_rank:
    case Fate::config:
      return;  // by the caller
  }
}

// --- accelerate's file of options ---

/// "key: value" of a file that `accelerate config` has written; what is indented or in braces belongs to the
/// key before.
std::map<std::string, std::string> keys_of(const std::string& yaml) {
  std::map<std::string, std::string> out;
  std::string last;
  for (const string_view line : lines_of(yaml)) {
    if (line.empty() || line.starts_with('#') || line.starts_with("---")) continue;
    if (line.starts_with(' ') || line.starts_with('\t')) {
      if (!last.empty()) out[last] += "...";
      continue;
    }
    const auto colon = line.find(':');
    if (colon == string_view::npos) continue;
    last = line.substr(0, colon);
    string_view value = trimmed(line.substr(colon + 1));
    if (value.size() > 1 && (value.front() == '\'' || value.front() == '"'))
      value = value.substr(1, value.size() - 2);
    out[last] = value;
  }
  return out;
}

/// Options of the command line win.
void take_file(LauncherCommand& out, const Launcher& launcher, const std::string& path,
               const std::string& text) {
  static constexpr std::array<string_view, 3> plain_types = {"NO", "MULTI_GPU", "MULTI_CPU"};
  auto keys = keys_of(text);
  const auto take = [&](const char* key) {
    const auto node = keys.extract(key);
    return node.empty() || node.mapped() == "null" || node.mapped() == "{}" ? "" : node.mapped();
  };
  const auto refuse = [&](const std::string& key, const std::string& value) {
    throw Error(Exit::usage, fmt::format("{} of {} cannot be kept", key, path),
                value.empty() ? "" : fmt::format("it is {}", value), fmt::format("{}?", in_the_script));
  };
  if (const auto type = take("distributed_type");
      !type.empty() && std::ranges::find(plain_types, type) == plain_types.end())
    refuse("distributed_type", type);
  if (const auto where = take("compute_environment"); !where.empty() && where != "LOCAL_MACHINE")
    refuse("compute_environment", where);
  const auto has = [&](const char* variable) {
    return std::ranges::any_of(out.environment, [&](const std::string& entry) {
      return entry.starts_with(std::string(variable) + "=");
    });
  };
  const auto use = [&](const char* key, const char* option) {
    const auto value = take(key);
    const Option& means = *option_called(launcher, option);
    if (value.empty() || value == "false" || value == "False") return;
    if ((means.fate == Fate::variable || means.fate == Fate::flag) &&
        has(std::string(means.text.substr(0, means.text.find('='))).c_str()))
      return;
    if ((means.fate == Fate::nodes && out.nodes) || (means.fate == Fate::total && out.total)) return;
    if (means.fate == Fate::gpus && has("CUDA_VISIBLE_DEVICES")) return;
    take_option(out, launcher, means, fmt::format("{} of {}", key, path), value);
  };
  use("mixed_precision", "mixed-precision");
  use("num_machines", "num-machines");
  use("num_processes", "num-processes");
  use("gpu_ids", "gpu-ids");
  use("use_cpu", "cpu");
  use("debug", "debug");
  use("enable_cpu_affinity", "enable-cpu-affinity");
  use("num_cpu_threads_per_process", "num-cpu-threads-per-process");
  for (const auto& [key, value] : keys)
    if (key.ends_with("_config") && value != "{}" && !value.empty()) refuse(key, "");
}

std::string accelerates_file(const Outside& outside) {
  std::string folder = outside.environment("HF_HOME");
  if (folder.empty()) folder = outside.environment("HOME") + "/.cache/huggingface";
  return folder + "/accelerate/default_config.yaml";
}

void find_file(LauncherCommand& out, const Launcher& launcher, const std::string& named,
               const Outside& outside) {
  const std::string path = named.empty() ? accelerates_file(outside) : named;
  if (const auto text = outside.read(path))
    take_file(out, launcher, path, *text);
  else if (!named.empty())
    throw Error(Exit::usage, "accelerate's file of options cannot be read", path);
}

}  // namespace

Script read_options(const Words& words, std::size_t at, const Launcher& launcher, const Outside& outside,
                    LauncherCommand& out) {
  Script script;
  std::string file;
  for (; at < words.size() && words[at].starts_with('-') && words[at] != "-"; ++at) {
    if (words[at] == "--") {
      ++at;
      break;
    }
    const auto equals = words[at].find('=');
    std::string word = words[at].substr(0, equals), value;
    bool has_value = equals != std::string::npos;
    if (has_value) value = words[at].substr(equals + 1);
    const bool is_short = !word.starts_with("--");
    if (is_short && word.size() > 2 && option_called(launcher, word.substr(1, 1))) {  // -r3
      value = words[at].substr(2);
      has_value = true;
      word.resize(2);
    }
    const Option* option = option_called(launcher, option_name(word));
    if (!option) {
      const bool group = launcher.kind == Kind::accelerate && needs_many_variables(option_name(word));
      refuse_option(launcher, word, group ? in_the_script : "Leave it out, if the ranks do not need it");
    }
    if (option->takes_value && !has_value) {
      if (at + 1 == words.size())
        throw Error(Exit::usage, fmt::format("{}'s option {} has no value", launcher.name, word));
      value = words[++at];
    }
    if (option->fate == Fate::module) script.module = true;
    if (option->fate == Fate::no_python) script.no_python = true;
    if (option->fate == Fate::no_rank) script.no_rank = true;
    if (option->fate == Fate::config) file = value;
    take_option(out, launcher, *option, word, value);
  }
  script.words.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(at, words.size())), words.end());
  if (script.words.empty())
    throw Error(Exit::usage, fmt::format("{} has no script", launcher.name), "",
                fmt::format("Write it behind the options of {}?", launcher.name));
  if (launcher.kind == Kind::accelerate) find_file(out, launcher, file, outside);
  return script;
}

}  // namespace holdfast::launcher::others
