#include "launcher/foresee/gpu_kinds.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

namespace holdfast::launcher {
namespace {

// Sources, all of NVIDIA; where a sheet has numbers with sparsity only, half of them.
//
// - H100: "H100 Tensor Core GPU" data sheet (SXM and PCIe); multiprocessors: "H100 Tensor Core GPU
//   architecture" (2022). Two PCIe cards can have a bridge; eight of them speak over PCIe.
// - H200: "H200 Tensor Core GPU" data sheet.
// - GH200: "GH200 Grace Hopper Superchip" data sheet, 96 GB; watts are of GPU, CPU and memory, at most.
// - A100: "A100 Tensor Core GPU" data sheet (80 GB SXM), "A100 Tensor Core GPU architecture" (2020).
// - L4 and L40S: their data sheets; "Ada GPU architecture" (2023).
// - B200: "HGX B200" data sheet: 180 GB at 62 TB/s for eight, 14.4 TB/s of NVLink for eight; multiprocessors
//   as its driver reports them.
constexpr double tera = 1e12, giga = 1e9;
constexpr std::array kinds{
    GpuKind{"H100 SXM", 989.4 * tera, 1978.9 * tera, 80 * giga, 3.35 * tera, 450 * giga, 64 * giga, 700, 132},
    GpuKind{"H100 PCIe", 756 * tera, 1513 * tera, 80 * giga, 2.0 * tera, 0, 64 * giga, 350, 114},
    GpuKind{"H200", 989.4 * tera, 1978.9 * tera, 141 * giga, 4.8 * tera, 450 * giga, 64 * giga, 700, 132},
    GpuKind{"GH200", 989.4 * tera, 1978.9 * tera, 96 * giga, 4.0 * tera, 450 * giga, 64 * giga, 1000, 132},
    GpuKind{"A100 80GB", 312 * tera, 0, 80 * giga, 2.039 * tera, 300 * giga, 32 * giga, 400, 108},
    GpuKind{"L4", 121 * tera, 242.5 * tera, 24 * giga, 300 * giga, 0, 32 * giga, 72, 58},
    GpuKind{"L40S", 362.05 * tera, 733 * tera, 48 * giga, 864 * giga, 0, 32 * giga, 350, 142},
    GpuKind{"B200", 2250 * tera, 4500 * tera, 180 * giga, 7.75 * tera, 900 * giga, 64 * giga, 1000, 148},
};

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte))
      words.back() += static_cast<char>(std::tolower(byte));
    else if (!words.back().empty())
      words.emplace_back();
  }
  return words;
}

}  // namespace

std::span<const GpuKind> gpu_kinds() { return kinds; }

const GpuKind* gpu_kind_called(std::string_view name) {
  const auto words = words_of(name);
  const auto has = [&](std::string_view word) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& w) { return w == word; });
  };
  if (has("mig") || has("nvl") || has("40gb")) return nullptr;
  if (has("h100")) return &kinds[has("pcie") ? 1 : 0];
  for (const GpuKind& kind : kinds)
    if (has(words_of(kind.name).front())) return &kind;
  return nullptr;
}

}  // namespace holdfast::launcher
