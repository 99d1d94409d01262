// The constructor sorts the sources by whether they may block. The OOM counter of the cgroup, the kernel's
// log and injected signs are read in the loop at each poll(). The shared folder, local file systems, links,
// their rates and GPUs have a thread each, and are asked again only when they have answered. found_ keeps a
// sign, with the attempt that was current when the loop took it, until poll() or at_exit() gives it out,
// once, with its age. standing() alone repeats one: a new leader must know that shared storage is silent.
//
// watch_shared() asks nobody: shared storage is silent while the thread at its folder is busy for over 2 s.
// Counters of the kernel name no rank. at_exit() gives a kill of the last 5 s to a rank that was ended by
// SIGKILL or has vanished, each kill to one rank; if its sign was given out before, another one with the rank
// follows.
#include "launcher/agent/signs/signs.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <set>

#include "launcher/agent/signs/gpu_source.hpp"
#include "launcher/diagnose/output_patterns.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;
namespace {

constexpr Millis shared_patience{2000};  // with a file system that does not answer
constexpr Millis kill_claim{5000};       // from an OOM kill to the end of its rank, at most
constexpr std::size_t max_in_a_message = 256;
constexpr std::uint64_t last_bytes = 4096;  // earlier lines are about something else
constexpr int last_lines = 40;

}  // namespace

/// A source with a thread of its own. The source outlives this object while it is blocked.
struct Signs::Slow {
  std::shared_ptr<SignSource> source;
  bool asked = false;
  control::Worker worker;
  Slow(control::Loop& loop, std::shared_ptr<SignSource> s)
      : source(std::move(s)), worker(loop, Millis(100)) {}
};

SignPlaces sign_places(const RunDir& run, const std::string& node, const config::RunConfig& config,
                       const config::ClusterFacts& cluster) {
  SignPlaces places;
  places.shared = run.path;
  places.touched = run.logs() / ("agent-" + node + ".log");
  places.local = {node_memory};
  if (const fs::path local = config.checkpoint.local; local.is_absolute() && local != node_memory)
    places.local.push_back(local);
  places.memory_counter = memory_counter_of("/proc/self/cgroup", "/sys/fs/cgroup");
  places.kernel_log = "/dev/kmsg";
  std::set<std::string> interfaces, devices;
  if (!cluster.control_interface.empty()) interfaces.insert(cluster.control_interface);
  for (const auto& gpu : cluster.gpus) {
    if (!gpu.netdev.empty()) interfaces.insert(gpu.netdev);
    if (!gpu.nic.empty()) devices.insert(gpu.nic);
  }
  places.interfaces.assign(interfaces.begin(), interfaces.end());
  places.devices.assign(devices.begin(), devices.end());
  if (config.drill.allowed) {
    const auto named = [&](const char* variable) {
      std::string path = env::get_or(variable, "");
      if (const auto at = path.find("%N"); at != std::string::npos) path.replace(at, 2, node);
      return path;
    };
    places.injected = named("HOLDFAST_SIGNS");
    if (const std::string sys = named("HOLDFAST_SYS"); !sys.empty()) places.sys = sys;
  }
  return places;
}

Signs::Signs(control::Loop& loop, const SignPlaces& places)
    : loop_(loop), memory_(places.memory_counter), shared_(places.shared) {
  quick_.push_back(
      std::make_unique<ClockJumps>([&loop] { return loop.steady_seconds(); }, loop.unix_clock()));
  if (!places.kernel_log.empty()) {
    auto log = std::make_unique<KernelLog>(places.kernel_log);
    if (!log->unread().empty())
      log::warn("{}: {}. {}", log->unread(), unseen_without_kernel_log, log->advice());
    quick_.push_back(std::move(log));
  }
  if (!places.injected.empty()) quick_.push_back(std::make_unique<InjectedSigns>(places.injected));
  const auto slow = [&](std::shared_ptr<SignSource> source) {
    slow_.push_back(std::make_unique<Slow>(loop, std::move(source)));
  };
  slow(std::make_shared<SharedFolder>(places.shared, places.touched));  // the first: watch_shared() asks it
  slow(std::make_shared<LocalSpace>(places.local));                     // a failing disk may answer late
  if (!places.interfaces.empty() || !places.devices.empty())
    slow(std::make_shared<Links>(places.interfaces, places.devices, places.rdma, state_of_interface));
  if (!places.sys.empty()) slow(std::make_shared<LinkRates>(places.interfaces, places.devices, places.sys));
  if (!places.nvml.empty()) slow(std::make_shared<GpuSigns>(places.nvml));
}

Signs::~Signs() = default;

/// The sources are asked first: what they have seen until now was before.
void Signs::attempt_begins(int attempt) {
  take_kills();
  for (const auto& source : quick_) take(source->poll());
  attempt_ = attempt;
  kills_ = 0;
}

void Signs::found_now(control::Sign sign) {
  sign.attempt = attempt_;
  found_.push_back({std::move(sign), loop_.now()});
}

void Signs::take(std::vector<control::Sign> signs) {
  for (auto& sign : signs) {
    // The counter, where there is one, counts the same kills, and only those of our own group.
    if (!memory_.counts() && (sign.kind == "oom_kill" || sign.kind == "node_out_of_memory")) {
      ++kills_;
      kills_text_ = sign.text;
      kills_at_ = loop_.now();
    }
    found_now(std::move(sign));
  }
}

void Signs::take_kills() {
  for (auto& sign : memory_.poll()) {
    kills_ += sign.code;
    kills_text_ = sign.text;
    kills_at_ = loop_.now();
    found_now(std::move(sign));
  }
}

/// A file system that does not answer blocks the thread that asks it.
void Signs::watch_shared() {
  const auto waiting = slow_.front()->worker.busy_for();
  const bool silent = waiting && *waiting > shared_patience;
  if (silent == std::exchange(shared_silent_, silent)) return;
  const std::int64_t age = silent ? waiting->count() : 0;
  found_.push_back({{silent ? "shared_gone" : "shared_back", -1, 0, 0, shared_.string(), attempt_},
                    loop_.now() - Millis(age)});
}

std::vector<control::Sign> Signs::found() {
  const auto now = loop_.now();
  std::vector<control::Sign> out;
  for (auto& [sign, at] : std::exchange(found_, {})) {
    sign.age_ms = std::max<std::int64_t>(0, std::chrono::duration_cast<Millis>(now - at).count());
    out.push_back(std::move(sign));
  }
  return out;
}

std::vector<control::Sign> Signs::poll() {
  take_kills();
  for (const auto& source : quick_) take(source->poll());
  watch_shared();
  for (const auto& slow : slow_)
    if (!slow->asked && !slow->source->absent()) {
      slow->asked = true;
      slow->worker.ask([source = slow->source] { return source->poll(); },
                       [this, asked = slow.get()](std::vector<control::Sign> signs) {
                         asked->asked = false;
                         take(std::move(signs));
                       });
    }
  return found();
}

std::vector<control::Sign> Signs::standing() const {
  if (!shared_silent_) return {};
  return {{"shared_gone", -1, 0, 0, shared_.string(), attempt_}};
}

std::vector<control::Sign> Signs::at_exit(int rank, int attempt, int status, const std::string& said) {
  take_kills();
  for (const auto& source : quick_) take(source->poll());
  const bool killed = status == 128 + SIGKILL || status == -1;
  if (killed && kills_ > 0 && attempt == attempt_ && loop_.now() - kills_at_ <= kill_claim) {
    --kills_;
    const auto named = std::find_if(found_.rbegin(), found_.rend(), [&](const Found& f) {
      return (f.sign.kind == "oom_kill" || f.sign.kind == "node_out_of_memory") && f.sign.rank < 0 &&
             f.sign.attempt == attempt;
    });
    if (named != found_.rend())
      named->sign.rank = rank;
    else  // it was reported before the end
      found_.push_back({{"oom_kill", rank, 1, 0, kills_text_, attempt}, kills_at_});
  }
  // A process that was killed wrote no reason: the end of its log is older.
  if (const Meaning meaning = meaning_of(rank, status, said); !killed && !meaning.line.empty())
    found_.push_back({{"log_tail", rank, status, 0, meaning.line, attempt}, loop_.now()});
  return found();
}

std::vector<control::NodeSigns> messages_of(const std::vector<control::Sign>& signs) {
  std::vector<control::NodeSigns> out;
  for (const auto& sign : signs) {
    if (out.empty() || out.back().signs.size() == max_in_a_message) out.emplace_back();
    out.back().signs.push_back(sign);
  }
  return out;
}

std::string log_tail(const fs::path& log) {
  std::string text;
  try {
    text = files::read_end(log, last_bytes);
  } catch (const Error&) {
    return "";
  }
  // The first line may be the end of one.
  if (text.size() == last_bytes) text.erase(0, std::min(text.find('\n'), text.size()));
  auto begin = text.size();
  for (int line = 0; line <= last_lines && begin != 0 && begin != std::string::npos; ++line)
    begin = text.rfind('\n', begin - 1);
  return begin == std::string::npos || begin == 0 ? text : text.substr(begin);
}

}  // namespace holdfast::launcher
