// How a launcher is found in a command, and what its options mean, is in launcher_call and launcher_options.
// Here its place is taken: what each rank runs, what the settings say then, and what people are told. What a
// script file starts is only warned of: its words do not show which of its lines are run.
#include "launcher/job/other_launchers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "launcher/job/launcher_call.hpp"
#include "launcher/job/launcher_options.hpp"
#include "launcher/job/launcher_table.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/subprocess.hpp"
#include "src/base/text.hpp"
#include "src/config/rank_promises.hpp"

namespace holdfast::launcher {
namespace others {
namespace {

/// The interpreter of the launcher itself: a launcher that is installed in an environment names its own.
std::string interpreter_of(const Words& words, const Found& found, const Outside& outside) {
  constexpr const char* any = "python3";
  if (is_python(words[found.begin])) return words[found.begin];
  for (std::size_t i = 0; i < found.begin; ++i)
    if (chooses_environment(base(words[i]))) return any;  // that of the environment
  const std::string path = outside.find(words[found.begin]);
  const auto text = path.empty() ? std::nullopt : outside.read(path);
  if (!text || !text->starts_with("#!")) return any;
  const std::string program(trimmed(first_line(string_view(*text).substr(2))));
  return program.find(' ') == std::string::npos && is_python(program) ? program : any;
}

Words command_of(const Script& script, const Launcher& launcher, const std::string& interpreter,
                 std::string& shown) {
  Words out;
  if (!script.no_python) out = {interpreter, "-u"};
  if (!script.no_python && script.module) out.emplace_back("-m");
  const std::size_t name = out.size();
  out.insert(out.end(), script.words.begin(), script.words.end());
  shown = fmt::format("{}", fmt::join(out, " "));
  if (launcher.number.empty() || script.no_rank) return out;
  shown = fmt::format("{} {}=N{}{}",
                      fmt::join(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(name) + 1, " "),
                      launcher.number, out.size() > name + 1 ? " " : "",
                      fmt::join(out.begin() + static_cast<std::ptrdiff_t>(name) + 1, out.end(), " "));
  // The number differs from rank to rank: a shell writes it behind the script's name.
  std::string text = "exec";
  for (std::size_t i = 0; i <= name; ++i) text += fmt::format(" \"${{{}}}\"", i);
  text += fmt::format(" {}=\"$LOCAL_RANK\"", launcher.number);
  const std::string rest = fmt::format(" \"${{@:{}}}\"", name + 1);
  out.insert(out.begin(), {"bash", "-c", text + rest});
  return out;
}

[[noreturn]] void refuse_program(const Words& words, const Found& found) {
  // The program behind its options, where one can be seen.
  std::string program = "PROGRAM ARGUMENT...";
  for (std::size_t i = found.end; i < words.size(); ++i)
    if (!words[i].starts_with('-') &&
        (is_python(words[i]) || words[i].starts_with("./") || words[i].ends_with(".py"))) {
      program =
          fmt::format("{}", fmt::join(words.begin() + static_cast<std::ptrdiff_t>(i), words.end(), " "));
      if (words[i].ends_with(".py")) program = "python3 " + program;
      break;
    }
  const RefusedProgram& refused = *found.refused;
  const bool mpi = refused.instead == with_mpi;
  const std::string instead = refused.instead.empty() || mpi
                                  ? fmt::format("Write the program alone: --command '{}'{}", program,
                                                mpi ? " --set rank.launch=mpi" : "")
                                  : std::string(refused.instead);
  throw Error(Exit::usage, found.name + " cannot be the program of the ranks", std::string(refused.why),
              instead + "?");
}

bool is_set(const config::Loaded& loaded, const char* key) {
  const auto origin = loaded.origin.find(key);
  return origin != loaded.origin.end() && origin->second != "default";
}

/// Takes `value` for the setting, where nobody has set it; else it must be the same.
void agree(config::Loaded& loaded, const LauncherCommand& from, const char* key, int& setting, int value) {
  if (!is_set(loaded, key)) {
    setting = value;
    loaded.origin[key] = from.launcher;
  } else if (setting != value) {
    throw Error(Exit::usage, fmt::format("the command and {} contradict each other", key),
                fmt::format("{} says {}, and {} is {}", from.launcher, value, key, setting),
                fmt::format("Leave {} out of the command?", from.launcher));
  }
}

void agree_on_size(config::Loaded& loaded, LauncherCommand& from) {
  auto& cluster = loaded.config.cluster;
  if (from.nodes) agree(loaded, from, "cluster.nodes", cluster.nodes, *from.nodes);
  if (from.min_nodes && !is_set(loaded, "supervise.min_nodes"))
    agree(loaded, from, "supervise.min_nodes", loaded.config.supervise.min_nodes, *from.min_nodes);
  if (from.total) {
    if (*from.total % cluster.nodes != 0)
      throw Error(Exit::usage, "the processes cannot be divided among the nodes",
                  fmt::format("{} starts {} processes in all, and the job has {} nodes", from.launcher,
                              *from.total, cluster.nodes),
                  "Write another -N?");
    from.per_node = *from.total / cluster.nodes;
  }
  if (from.per_node_by_default && is_set(loaded, "cluster.ranks_per_node")) return;
  if (*from.per_node == 0 && (from.per_node_by_default || is_set(loaded, "cluster.ranks_per_node"))) return;
  agree(loaded, from, "cluster.ranks_per_node", cluster.ranks_per_node, *from.per_node);
}

std::vector<std::string> lines_for_people(const config::Loaded& loaded, const LauncherCommand& from) {
  const auto& config = loaded.config;
  std::vector<std::string> out;
  const int per_node = config.cluster.ranks_per_node;
  out.push_back(fmt::format("Holdfast takes the place of {}: {} of {} node{} run{} {}", from.launcher,
                            per_node == 0   ? "a rank for each GPU"
                            : per_node == 1 ? "one rank on each"
                                            : fmt::format("{} ranks on each", per_node),
                            config.cluster.nodes, config.cluster.nodes == 1 ? "" : "s",
                            per_node > 1 ? "" : "s", from.shown));
  if (from.per_node_by_default && from.per_node == 1 && per_node == 1)
    out.back() += fmt::format(
        ". {} alone starts one process on each node; for one on each GPU write --nproc-per-node=gpu",
        from.launcher);
  if (!from.environment.empty())
    out.push_back(fmt::format("ranks get, as from {}: {}", from.launcher, fmt::join(from.environment, " ")));
  std::map<std::string, std::vector<std::string>> reasons;
  for (const auto& [option, why] : from.dropped) reasons[why].push_back(option);
  for (const auto& [why, options] : reasons)
    out.push_back(fmt::format("{} of {} {} left out: {}", fmt::join(options, ", "), from.launcher,
                              options.size() == 1 ? "is" : "are", why));
  return out;
}

}  // namespace
}  // namespace others

Outside this_machine() {
  constexpr std::size_t longest = 64u << 10;
  return {[](const std::string& path) -> std::optional<std::string> {
            std::error_code unknown;
            if (!std::filesystem::is_regular_file(path, unknown) ||
                std::filesystem::file_size(path, unknown) > longest)
              return std::nullopt;
            try {
              return files::read_text(path);
            } catch (const Error&) {
              return std::nullopt;
            }
          },
          [](const std::string& program) -> std::string {
            for (const auto& place : places_in(env::get_or("PATH", ""), program))
              if (::access(place.c_str(), X_OK) == 0) return place;
            return "";
          },
          [](const char* variable) { return env::get_or(variable, ""); }};
}

std::optional<LauncherCommand> launcher_in(const std::vector<std::string>& words, const Outside& outside) {
  using namespace others;
  const Found found = called_by(words);
  if (found.refused) refuse_program(words, found);
  if (!found.launcher) return std::nullopt;
  const Launcher& launcher = *found.launcher;
  LauncherCommand out;
  out.launcher = launcher.name;
  const Script script = read_options(words, found.end, launcher, outside, out);
  if (!out.per_node && !out.total) {
    out.per_node = launcher.per_node;
    out.per_node_by_default = true;
  }
  // What stands before the launcher stays; `exec` is a word of shells.
  Words before(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(found.begin));
  std::erase_if(before, [](const std::string& word) { return word == "exec" || word == "command"; });
  if (!before.empty() && is_assignment(before.front())) before.insert(before.begin(), "env");
  out.command = command_of(script, launcher, interpreter_of(words, found, outside), out.shown);
  out.command.insert(out.command.begin(), before.begin(), before.end());
  return out;
}

std::string launcher_in_script(const std::string& text) {
  others::Words where;
  const others::Found found = others::called_in_text(text, where);
  return found ? found.name : "";
}

std::vector<std::string> take_launcher(config::Loaded& loaded, const Outside& outside) {
  using namespace others;
  auto& config = loaded.config;
  const Words words = config.rank.command;
  if (words.empty() || config::promises_of(config.rank).one_process) return {};
  Outside where_ranks_run = outside;
  if (!config.container.image.empty()) where_ranks_run.find = [](const std::string&) { return ""; };
  if (auto from = launcher_in(words, where_ranks_run)) {
    agree_on_size(loaded, *from);
    config.rank.command = from->command;
    auto& own = config.rank.environment;
    std::erase_if(from->environment, [&](const std::string& entry) {
      const std::string name = entry.substr(0, entry.find('=') + 1);
      return std::ranges::any_of(own, [&](const std::string& e) { return e.starts_with(name); });
    });
    own.insert(own.end(), from->environment.begin(), from->environment.end());
    return lines_for_people(loaded, *from);
  }
  const bool one = config.cluster.ranks_per_node == 1 && is_set(loaded, "cluster.ranks_per_node");
  if (const std::string* text = shell_text(words)) {
    Words where;
    const Found found = called_in_text(*text, where);
    if (!found) return {};
    if (found.refused) refuse_program(where, found);
    if (!one)
      throw Error(
          Exit::usage,
          fmt::format("the shell of each rank would start {}, which starts ranks of its own", found.name),
          "Holdfast takes the place of a launcher only where no shell stands around it",
          fmt::format(
              "Write in the shell's text what {} starts (exec python3 SCRIPT), or for one {} on each node "
              "--set cluster.ranks_per_node=1?",
              found.name, found.name));
    return {};
  }
  const auto script = outside.read(script_in(words));
  const std::string hidden = script && (script->starts_with("#!") || is_shell(base(words.front())))
                                 ? launcher_in_script(*script)
                                 : "";
  if (hidden.empty() || one) return {};
  return {fmt::format(
      "{} has a line that starts {}. Under Holdfast every rank would start ranks of its own there: let the "
      "script end with exec python3 SCRIPT instead",
      script_in(words), hidden)};
}

}  // namespace holdfast::launcher
