#include "launcher/agent/signs/gpu_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "src/nvml/library.hpp"

namespace holdfast::launcher {
namespace {

constexpr std::uint64_t too_hot = nvml::thermal_by_driver | nvml::thermal_by_hardware;
constexpr int max_gpus = 64;
constexpr int max_events = 256;      // in one poll
constexpr int thorough = 5;          // every so many polls, and after an event
constexpr int polls_for_a_link = 2;  // thorough ones

/// Nothing: the GPU does not answer for some.
std::optional<int> active_links(const nvml::Library& library, nvml::Gpu gpu) {
  const auto links = library.links(gpu);
  return links.all_answered ? std::optional(links.up) : std::nullopt;
}

bool less_is_left(const std::pair<unsigned, int>& a, const std::pair<unsigned, int>& b) {
  return a.second < b.second;
}

}  // namespace

struct GpuSigns::Gpu {
  nvml::Gpu handle = nullptr;
  std::string name;  ///< "GPU 3 (0000:3b:00, GPU-...)"
  bool lost = false, remap_failed = false, hot = false;
  int recovery = 0;
  int links = 0;                   ///< that were up
  int polls_down = 0;              ///< in a row with fewer
  std::map<unsigned, int> speeds;  ///< of its links when they were first seen up, MB/s
  int polls_slow = 0;              ///< in a row with one below that
};

GpuSigns::GpuSigns(std::string library) : name_(std::move(library)) {}

GpuSigns::~GpuSigns() = default;

bool GpuSigns::load() {
  if (std::exchange(tried_, true)) return library_ != nullptr;
  auto library = std::make_unique<nvml::Library>(name_);
  if (!library->absent().empty()) return false;
  library_ = std::move(library);
  const int count = std::min(library_->count().value_or(0), max_gpus);
  for (int n = 0; n < count; ++n) {
    const auto handle = library_->by_index(static_cast<unsigned>(n));
    if (!handle) continue;
    Gpu gpu;
    gpu.handle = *handle;
    const auto pci = library_->pci(gpu.handle).value_or(nvml::Pci());
    gpu.name = fmt::format("GPU {} ({:04x}:{:02x}:{:02x}, {})", n, pci.domain, pci.bus, pci.device,
                           library_->uuid(gpu.handle));
    gpu.links = active_links(*library_, gpu.handle).value_or(0);
    gpu.speeds = library_->link_speeds(gpu.handle);
    library_->listen(gpu.handle);
    gpus_.push_back(std::move(gpu));
  }
  return true;
}

std::vector<control::Sign> GpuSigns::poll() {
  std::vector<control::Sign> out;
  if (!load()) return out;
  take_events(out);
  const bool closely = polls_++ % thorough == 0 || !out.empty();
  for (Gpu& gpu : gpus_)
    if (!gpu.lost) poll_gpu(gpu, closely, out);
  return out;
}

void GpuSigns::take_events(std::vector<control::Sign>& out) {
  for (int n = 0; n < max_events; ++n) {
    const auto event = library_->next_event();
    if (!event) return;
    const auto gpu =
        std::find_if(gpus_.begin(), gpus_.end(), [&](const Gpu& g) { return g.handle == event->gpu; });
    const std::string name = gpu == gpus_.end() ? "a GPU" : gpu->name;
    const auto code = static_cast<std::int64_t>(event->data);
    if (event->type == nvml::xid_critical)
      out.push_back({"xid", -1, code, 0, fmt::format("Xid {} of {}", code, name)});
    else if (event->type == nvml::double_bit_error)
      out.push_back({"ecc_uncorrected", -1, code, 0, name});
  }
}

void GpuSigns::poll_gpu(Gpu& gpu, bool closely, std::vector<control::Sign>& out) const {
  const auto say = [&](const char* kind, std::int64_t code, const std::string& more = "") {
    out.push_back({kind, -1, code, 0, gpu.name + more});
  };
  nvml::Result alive = nvml::success;
  const std::uint64_t reasons = library_->slowdowns(gpu.handle, &alive).value_or(0);
  if (alive == nvml::gpu_is_lost) {
    gpu.lost = true;
    return say("gpu_lost", 0);
  }
  const bool hot = (reasons & too_hot) != 0;
  if (hot && !gpu.hot) say("thermal", static_cast<std::int64_t>(reasons));
  gpu.hot = hot;
  if (!closely) return;
  if (const auto action = library_->recovery_action(gpu.handle)) {
    const int before = std::exchange(gpu.recovery, *action);
    if (gpu.recovery != before && gpu.recovery != 0) say("gpu_recovery", gpu.recovery);
  }
  if (const auto rows = library_->remap(gpu.handle);
      rows && rows->failed && !std::exchange(gpu.remap_failed, true))
    say("row_remap_failure", rows->uncorrected);
  // A link may be trained again: only one that stays down is broken.
  const auto links = active_links(*library_, gpu.handle);
  gpu.polls_down = links && *links < gpu.links ? gpu.polls_down + 1 : 0;
  if (gpu.polls_down == polls_for_a_link)
    say("nvlink_error", gpu.links - *links, fmt::format(": {} of {} links are up", *links, gpu.links));
  std::pair<unsigned, int> slowest{0, 100};  // link, per cent of its speed that are left
  for (const auto& [link, speed] : library_->link_speeds(gpu.handle)) {
    int& first = gpu.speeds.try_emplace(link, speed).first->second;
    first = std::max(first, speed);
    if (speed < first) slowest = std::min(slowest, {link, std::max(1, 100 * speed / first)}, less_is_left);
  }
  gpu.polls_slow = slowest.second < 100 ? gpu.polls_slow + 1 : 0;
  if (gpu.polls_slow == polls_for_a_link)
    say("link_slow", slowest.second,
        fmt::format(": NVLink {} runs at {} % of its speed ({:g} GB/s)", slowest.first, slowest.second,
                    gpu.speeds[slowest.first] / 1000.0));
}

}  // namespace holdfast::launcher
