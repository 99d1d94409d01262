// script_text() fills `script_format`; with a bundle it adds `unpack_format`, which brings the programs to
// each node, and `clean_text`. The script starts `holdfast run` and passes signals on. It starts it again
// when it was killed or not found, until the sixth such end in a row within a minute each. On exit code 75 it
// requeues the job where `holdfast run` has not; with every other code it ends.
//
// submit_arguments() makes the arguments of sbatch. The user's own come last and go through joined(), which
// joins each option with its value and refuses every option in `owned`. check_path() refuses a path that
// would not reach the job unchanged. notice_for(), shortest_limit() and limit_in() calculate with the time
// limit. take_time() and waits_for_one_of() read options as joined() returns them. step_from_place() is for a
// job with a bundle: on each node, a step checks the unpacked programs before it starts one.
#include "slurm/batch_script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>

#include "slurm/asking.hpp"
#include "slurm/commands.hpp"
#include "src/base/error.hpp"

namespace holdfast::slurm {
namespace {

constexpr const char* script_format = R"(#!/bin/bash
# Written by `holdfast submit`; the run's settings are in config.toml beside this file.
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1 --exclusive --mem=0
{gpus}#SBATCH --no-kill --requeue --open-mode=append
#SBATCH --signal=B:USR1@{notice}

run_dir={run_dir}
{program}umask g-w,o=  # as you had it, but never more than reading for your group
child= again= stop= code=143 crashes=0
# A signal interrupts `wait`, is passed on, and the wait goes on.
trap 'again=1; kill -USR1 $child' USR1
trap 'again=1 stop=1; kill -TERM $child' TERM

while [ -z "$stop" ]; do
  begin=$SECONDS
  "$holdfast" run "$run_dir" &
  child=$!
  while again=; wait $child; code=$?; [ -n "$again" ]; do :; done
  # An exit code of its own ends the job. Killed (128 and more) or not found (a file system hiccup), it starts again, but
  # not for ever: the sixth end in a row within a minute each is the last.
  [ $code -ge 126 ] || break
  [ $((SECONDS - begin)) -lt 60 ] || crashes=0
  crashes=$((crashes + 1))
  [ $crashes -lt 6 ] || break
  sleep 1
done

{clean}# 0 done, 1 error, 2 usage, 3 plan impossible, 4 unhealthy, 5 out of spares, 75 again later, 93 not again,
# 128 and more: a signal. 75: nothing wrong with the run, but not here and now. `holdfast run` has put the job
# back into the queue, for other nodes; where it could not:
for try in 1 2 3 4 5 6 7 8 9 10; do
  [ $code -eq 75 ] && [ -z "$stop" ] || break
  # A preempted job is requeued by SLURM (24.05 and newer), or `holdfast run` has done it.
  case $(squeue -h -j "$SLURM_JOB_ID" -O PreemptTime) in [1-9]*) break ;; esac
  scontrol requeue "$SLURM_JOB_ID" && exec sleep 60
  [ -n "$stop" ] || sleep 30
done
exit $code
)";

constexpr std::string_view place_stem = "/tmp/holdfast-";

/// `place` is on a disk of the node, where other users can write, too. Nobody knows its name before, and it
/// is made before anything is put into it. A node on which this fails has no agent, which the leader handles
/// later: its step begins with `step_from_place`.
constexpr const char* unpack_format = R"(bundle={bundle}
place={stem}$SLURM_JOB_ID-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
holdfast=$place/holdfast/bin/holdfast
on_all_nodes() {{ timeout "$1" srun --overlap --no-kill --kill-on-bad-exit=0 --ntasks-per-node=1 "${{@:2}}"; }}
# The nodes have nothing of Holdfast: each gets the bundle into a folder that is yours alone, and unpacks it.
on_all_nodes 300 mkdir -m 700 "$place"
sbcast --force "$bundle" "$place/bundle.tar.gz"
on_all_nodes 300 sh -c 'umask 077; [ -O "$1" ] && [ ! -L "$1" ] && cd "$1" && tar -xzf bundle.tar.gz && rm bundle.tar.gz' sh "$place"
)";
constexpr const char* check_place =
    "[ -O \"$0\" ] && [ ! -L \"$0\" ] && [ ! -L \"${0%/*}\" ] && exec \"$@\"; "
    "echo \"holdfast: the bundle cannot be run on $(uname -n) ($0 is absent, or another user has made it)\" "
    ">&2; exit 4";
constexpr const char* clean_text = "on_all_nodes 30 rm -rf \"$place\"\n\n";

struct Owned {
  std::string_view name, why;
};
constexpr const char* array_why =
    "a run directory belongs to one job: in a script of your own, 'holdfast run JOB.toml --set run.dir=...'";
constexpr const char* requeue_why =
    "the script asks for it; with 'expedite', SLURM would hold every job that ends with an error";
/// Options that conflict with those of Holdfast.
constexpr std::array<Owned, 26> owned = {
    {{"--nodes", "Holdfast counts active nodes and spares"},
     {"-N", "Holdfast counts active nodes and spares"},
     {"--ntasks", "Holdfast starts the ranks"},
     {"-n", "Holdfast starts the ranks"},
     {"--ntasks-per-node", "Holdfast starts the ranks"},
     {"--output", "the run directory holds the logs"},
     {"-o", "the run directory holds the logs"},
     {"--error", "the run directory holds the logs"},
     {"-e", "the run directory holds the logs"},
     {"--chdir", "a job starts in its run directory"},
     {"-D", "a job starts in its run directory"},
     {"--job-name", "it is the run's name"},
     {"-J", "it is the run's name"},
     {"--no-requeue", "a job that loses its first node must come back"},
     {"--requeue", requeue_why},
     {"--oversubscribe", "Holdfast needs whole nodes"},
     {"-s", "Holdfast needs whole nodes"},
     {"--array", array_why},
     {"-a", array_why},
     {"--wrap", "Holdfast brings the script"},
     {"--wait", "submit returns at once"},
     {"-W", "submit returns at once"},
     {"--test-only", "nothing would be submitted"},
     {"--clusters", "a run belongs to one cluster"},
     {"-M", "a run belongs to one cluster"},
     {"--container", "the batch script starts steps, and cannot from a container"}}};

bool is_plain(std::string_view word) {
  return !word.empty() &&
         word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,@%+") ==
             std::string_view::npos;
}

std::optional<std::int64_t> count_in(std::string_view digits) {
  int count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  return error == std::errc{} && end == digits.data() + digits.size() && count >= 0 ? std::optional(count)
                                                                                    : std::nullopt;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace

std::string script_text(const BatchJob& job) {
  check_path("the run directory", job.run_dir);
  if (job.bundle.empty())
    check_path("holdfast's own path", job.holdfast);
  else
    check_path("the bundle", job.bundle);
  const std::string program =
      job.bundle.empty()
          ? "holdfast=" + single_quoted(job.holdfast.string()) + "\n"
          : fmt::format(fmt::runtime(unpack_format), fmt::arg("bundle", single_quoted(job.bundle.string())),
                        fmt::arg("stem", place_stem));
  return fmt::format(
      fmt::runtime(script_format), fmt::arg("nodes", job.nodes),
      fmt::arg("gpus",
               job.gpus_per_node > 0 ? fmt::format("#SBATCH --gres=gpu:{}\n", job.gpus_per_node) : ""),
      fmt::arg("notice", job.notice_s), fmt::arg("run_dir", single_quoted(job.run_dir.string())),
      fmt::arg("program", program), fmt::arg("clean", job.bundle.empty() ? "" : clean_text));
}

std::vector<std::string> step_from_place(std::vector<std::string> command) {
  const std::string program = command.front();
  if (!program.starts_with(place_stem)) return command;
  // In an image only this folder is the node's; the one around it is what the runtime has made.
  const std::string unpacked = program.substr(0, program.find('/', program.find('/', place_stem.size()) + 1));
  command.insert(command.begin(), {"sh", "-c", check_place, unpacked});
  return command;
}

std::vector<std::string> submit_arguments(const BatchJob& job) {
  check_path("the run directory", job.logs);
  std::vector<std::string> arguments = {"--job-name=" + job.name, "--chdir=" + job.run_dir.string(),
                                        "--output=" + file_pattern(job.logs) + "/job-%j.log"};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) arguments.push_back(option + value);
  };
  add("--partition=", job.partition), add("--account=", job.account), add("--qos=", job.qos),
      add("--reservation=", job.reservation);
  add("--time=", job.time), add("--constraint=", job.constraint);
  const auto extra = joined(job.extra);
  arguments.insert(arguments.end(), extra.begin(), extra.end());
  return arguments;
}

void check_path(const std::string& what, const std::filesystem::path& path) {
  const std::string& text = path.native();
  const auto fail = [&](const char* why) {
    throw Error(Exit::usage, what + " cannot be used: " + shown({text}), why, "Choose another path?");
  };
  if (!path.is_absolute()) fail("it is not absolute");
  if (std::any_of(text.begin(), text.end(), is_control))
    fail("it contains a newline or another control character");
  if (text.find('\\') != std::string::npos)
    fail("it contains a backslash, which SLURM drops from file names");
}

std::vector<std::string> joined(const std::vector<std::string>& typed) {
  std::vector<std::string> out;
  bool open = false;  // the last option has no value yet
  for (const auto& word : typed) {
    if (word.size() < 2 || word.front() != '-') {
      if (!open)
        throw Error(Exit::usage, "sbatch would take " + shown({word}) + " for its script",
                    "it belongs to no option", "Write --option=value?");
      const bool is_long = out.back().starts_with("--");
      out.back() += (is_long ? "=" : "") + word;
      open = false;
      continue;
    }
    const bool is_long = word.starts_with("--");
    const std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
    if (name == "--")
      throw Error(Exit::usage, "sbatch takes no second '--'", "everything after the first one is for it",
                  "Leave it out?");
    for (const auto& [option, why] : owned) {
      // sbatch knows abbreviations: "--out" is "--output".
      const bool same = is_long ? option.starts_with(name) && name.size() > 3 : option == name;
      if (same)
        throw Error(Exit::usage, "sbatch's " + std::string(option) + " cannot be given", std::string(why),
                    "Leave it out; 'holdfast submit --help' has Holdfast's own options");
    }
    out.push_back(word);
    open = is_long ? word.find('=') == std::string::npos : word.size() == 2;
  }
  return out;
}

int notice_for(int drain_s, std::optional<int> limit_s) {
  constexpr int usual_s = 120, least_s = 15, usual_least_s = 30;  // the latter two besides the checkpoint
  const int usual = std::max(usual_s, drain_s + usual_least_s);
  return limit_s ? std::min(usual, std::max(drain_s + least_s, *limit_s / 3)) : usual;
}

int shortest_limit(int drain_s) {
  constexpr int rest_s = early_s + 20;
  return std::max(notice_for(drain_s, 0) + rest_s, rest_s * 3 / 2);  // a third of it may be the notice
}

std::optional<int> limit_in(std::string_view time) {
  constexpr int day = 24 * 3600, hour = 3600, minute = 60;
  const auto dash = time.find('-');
  std::int64_t seconds = 0;
  std::vector<int> units = {minute};  // of the parts between colons
  if (dash != std::string_view::npos) {
    const auto days = count_in(time.substr(0, dash));
    if (!days) return std::nullopt;
    seconds = *days * day;
    time.remove_prefix(dash + 1);
    units = {hour, minute, 1};
  } else if (const auto colons = std::ranges::count(time, ':'); colons > 0) {
    units = colons == 1 ? std::vector{minute, 1} : std::vector{hour, minute, 1};
  }
  std::size_t part = 0;
  for (bool more = true; more; ++part) {
    const auto end = std::min(time.find(':'), time.size());
    const auto count = count_in(time.substr(0, end));
    if (!count || part >= units.size()) return std::nullopt;
    seconds += *count * units[part];
    more = end < time.size();
    time.remove_prefix(more ? end + 1 : end);
  }
  const std::int64_t whole = (seconds + minute - 1) / minute * minute;
  return whole > 0 && whole < std::numeric_limits<int>::max() ? std::optional(static_cast<int>(whole))
                                                              : std::nullopt;
}

std::optional<std::string> take_time(std::vector<std::string>& arguments) {
  std::optional<std::string> time;
  std::erase_if(arguments, [&](const std::string& argument) {
    for (const std::string_view option : {"--time=", "-t"})
      if (argument.starts_with(option) && argument.size() > option.size()) {
        time = argument.substr(option.size());
        return true;
      }
    return false;
  });
  return time;
}

bool waits_for_one_of(const std::vector<std::string>& arguments, const std::vector<JobId>& jobs) {
  std::string_view list;  // the last one counts
  for (const std::string_view argument : arguments)
    for (const std::string_view option : {"--dependency=", "-d"})
      if (argument.starts_with(option)) list = argument.substr(option.size());
  const auto waits = [&](std::string_view one) {
    if (one == "singleton") return true;
    auto words = split(one, ':');
    // "after" waits for a start, "aftercorr" for tasks of an array.
    if (words[0] != "afterany" && words[0] != "afterok" && words[0] != "afternotok") return false;
    return std::ranges::any_of(words.begin() + 1, words.end(), [&](std::string_view word) {
      return std::ranges::any_of(jobs, [&](JobId id) { return word == std::to_string(id); });
    });
  };
  if (list.empty()) return false;
  const bool any = list.find('?') != std::string_view::npos;  // one of them is enough; else all are needed
  const auto parts = split(list, any ? '?' : ',');
  return any ? std::ranges::all_of(parts, waits) : std::ranges::any_of(parts, waits);
}

std::string single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

std::string shown(const std::vector<std::string>& argv) {
  std::string out;
  for (const auto& word : argv) {
    if (!out.empty()) out += ' ';
    if (is_plain(word)) {
      out += word;
    } else if (std::none_of(word.begin(), word.end(), is_control)) {
      out += single_quoted(word);
    } else {
      out += "$'";
      for (const char c : word) {
        if (is_control(c))
          out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else if (c == '\'' || c == '\\')
          (out += '\\') += c;
        else
          out += c;
      }
      out += '\'';
    }
  }
  return out;
}

}  // namespace holdfast::slurm
