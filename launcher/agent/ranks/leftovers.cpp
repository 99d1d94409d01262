#include "launcher/agent/ranks/leftovers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace holdfast::launcher {
namespace {

constexpr std::size_t max_named = 5;

/// Services that programs start beside themselves, and that may use a GPU or a core.
bool is_service(const Leftover& left) {
  static constexpr std::array names = {"nvidia-cuda-mps", "nv-hostengine", "nvidia-smi", "dcgmi",
                                       "tensorboard",     "wandb-core",    "gpu_stats",  "mlflow",
                                       "ssh-agent",       "gpg-agent",     "dbus-daemon"};
  return std::ranges::find(names, std::string_view(left.name)) != names.end();
}

double cpu_of(const std::vector<Leftover>& some) {
  double sum = 0;
  for (const Leftover& one : some) sum += is_service(one) ? 0 : one.cpu_s;
  return sum;
}

/// Those of `now` that were there before have used so much since.
double cpu_since(const std::vector<Leftover>& before, const std::vector<Leftover>& now) {
  double used = 0;
  for (const Leftover& one : now) {
    if (is_service(one)) continue;
    const auto same = std::ranges::find(before, one.pid, &Leftover::pid);
    used += one.cpu_s - (same == before.end() ? 0 : same->cpu_s);
  }
  return used;
}

}  // namespace

LeftoverWatch::Verdict LeftoverWatch::judge(std::vector<Leftover> left, double now) {
  left_ = std::move(left);
  // A process that becomes another program at this moment has no environment, and is not seen.
  if (left_.empty()) return now - ended_at_ < look_every_s ? Verdict::wait : Verdict::none_left;
  if (first_at_ < 0) {
    first_ = left_;
    first_at_ = now;
  }
  const double used = cpu_of(left_);
  if (idle_since_ < 0 || std::abs(used - idle_at_cpu_s_) > idle_cpu_s) {
    idle_since_ = now;
    idle_at_cpu_s_ = used;
  }
  const bool over = now - ended_at_ >= limit_s;
  if (!over && now - idle_since_ < idle_s) return Verdict::wait;
  const bool busy = cpu_since(first_, left_) >= busy_cores * (now - first_at_);
  const bool did_the_work = rank_cpu_s_ && used >= some_cpu_s && used > *rank_cpu_s_;
  const bool gpu = std::ranges::any_of(left_, [](const Leftover& l) { return l.gpu && !is_service(l); });
  if (!busy && !gpu && !did_the_work) return Verdict::harmless;
  return over ? Verdict::train : Verdict::wait;
}

std::string LeftoverWatch::names() const {
  std::string out;
  for (std::size_t i = 0; i < std::min(left_.size(), max_named); ++i)
    out += fmt::format("{}{} ({})", i == 0 ? "" : ", ", left_[i].name, left_[i].pid);
  if (left_.size() > max_named) out += fmt::format(" and {} more", left_.size() - max_named);
  return out;
}

}  // namespace holdfast::launcher
