#include "launcher/agent/ranks/warm_ranks.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {
namespace {

constexpr int digits = 10;  // of waiting_attempt, and of the rank that takes its place in the environment

/// Imports what its arguments name, waits for a line, and becomes the program that the line names. `-c` makes
/// sys.argv[0] "-c". The environment in /proc is written over in place: by it a node's processes are told
/// apart.
constexpr const char* interpreter_program = R"py(
def wait():
    import ctypes, importlib, json, os, sys, zipfile
    for name in sys.argv[1:]:
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"holdfast: rank.warm: {name} cannot be imported: {error}", file=sys.stderr, flush=True)
    line = sys.stdin.buffer.readline()
    if not line:
        os._exit(0)
    rank = json.loads(line)
    with open("/proc/self/environ", "rb") as file:
        shown = b"\0" + file.read()
    with open("/proc/self/stat") as file:
        start = int(file.read().rpartition(")")[2].split()[47])
    for name in ("HOLDFAST_ATTEMPT", "HOLDFAST_RANK"):
        key = f"\0{name}=".encode()
        value = rank["environment"][name].zfill(10).encode()
        ctypes.memmove(start + shown.index(key) + len(key) - 1, value, len(value))
    os.environ.clear()
    os.environ.update(rank["environment"])
    output = os.open(rank["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    sys.stdout.flush(), sys.stderr.flush()
    os.dup2(output, 1), os.dup2(output, 2), os.close(output)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0), os.close(nothing)
    if rank["folder"]:
        os.chdir(rank["folder"])
    program = rank["program"]
    sys.argv = [program] + rank["arguments"]
    main = sys.modules["__main__"].__dict__
    for name in [n for n in main if not n.startswith("__")]:
        del main[name]
    safe_path = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
    def begin_path(folder):
        if not safe_path:
            sys.path[0] = folder
    if rank["module"]:
        import runpy
        begin_path(os.getcwd())
        return lambda: runpy._run_module_as_main(program)
    if os.path.isdir(program) or zipfile.is_zipfile(program):
        import runpy
        sys.path[:0 if safe_path else 1] = [program]
        return lambda: runpy._run_module_as_main("__main__", False)
    begin_path(os.path.dirname(os.path.realpath(program)))
    main["__file__"] = program
    with open(program, "rb") as file:
        code = compile(file.read(), program, "exec")
    return lambda: exec(code, main)
wait()()
)py";

}  // namespace

WarmRanks::WarmRanks(control::Loop& loop, NodeSystem& system, const config::Rank& rank, int count,
                     Command command)
    : loop_(loop),
      system_(system),
      program_(config::python_command(rank.command)),
      count_(program_ && !rank.warm.empty() ? count : 0),
      command_(std::move(command)) {
  if (count_ == 0) return;
  command_.argv = program_->interpreter;
  command_.argv.insert(command_.argv.end(), {"-c", interpreter_program});
  command_.argv.insert(command_.argv.end(), rank.warm.begin(), rank.warm.end());
  command_.environment->push_back(fmt::format("HOLDFAST_RANK={:0{}}", -1, digits));
  command_.folder = rank.directory;
  fill();
}

void WarmRanks::fill() {
  while (static_cast<int>(waiting_.size()) < count_) start_one();
}

void WarmRanks::start_one() {
  try {
    int ends[2];  // a socket, as writing to a pipe without reader would end this process
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw system_error("cannot create a socket", errno);
    const files::Fd read_end(ends[0]);
    auto one = std::make_shared<Waiting>();
    one->input = files::Fd(ends[1]);
    Command command = command_;
    command.input = read_end.get();
    const auto ended = [this, one](int status) {
      if (one->ended) return one->ended(status);
      std::erase(waiting_, one);
      if (status != 0 && count_ > 0)
        log::warn("an interpreter of rank.warm ended with status {}: ranks start without", status);
      count_ = 0;
    };
    const auto failed = [this, one](const Error& why) {
      std::erase(waiting_, one);
      none_waits(why);
    };
    one->pid = system_.start(std::move(command), {ended, failed, [one] { one->runs = true; }});
    waiting_.push_back(std::move(one));
  } catch (const Error& error) {
    none_waits(error);
  }
}

void WarmRanks::none_waits(const Error& why) {
  if (count_ > 0) log::warn("no interpreter waits for a rank (rank.warm): {}", why.what());
  count_ = 0;
}

void WarmRanks::end() {
  count_ = 0;
  later_.reset();
  for (const auto& one : waiting_) system_.signal(one->pid, SIGKILL);
}

std::optional<pid_t> WarmRanks::start(const Command& command, std::function<void(int)> ended) {
  const auto found = std::ranges::find_if(waiting_, [](const auto& waiting) { return waiting->runs; });
  if (found == waiting_.end()) return std::nullopt;
  const auto one = *found;
  waiting_.erase(found);
  nlohmann::json rank = {{"program", program_->program},
                         {"module", program_->module},
                         {"arguments", program_->arguments},
                         {"output", command.output.string()},
                         {"folder", command.folder.string()}};
  for (const auto& entry : *command.environment)
    rank["environment"][entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
  later_ = loop_.after(pause, [this] { fill(); });
  const std::string line = rank.dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore) + "\n";
  const ssize_t sent = ::send(one->input.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  one->input.reset();
  if (sent == static_cast<ssize_t>(line.size())) {
    one->ended = std::move(ended);
    return one->pid;
  }
  one->ended = [](int) {};  // it has just ended, or the line is longer than the socket holds
  system_.signal(one->pid, SIGKILL);
  return std::nullopt;
}

}  // namespace holdfast::launcher
