#include "launcher/foresee/gpu_kinds.hpp"

#include <gtest/gtest.h>

#include <string>

#include "src/config/model_flops.hpp"

namespace holdfast::launcher {
namespace {

std::string_view kind_of(std::string_view name) {
  const GpuKind* kind = gpu_kind_called(name);
  return kind == nullptr ? "" : kind->name;
}

TEST(GpuKinds, are_found_by_what_cluster_files_and_drivers_call_them) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"h100", "H100 SXM"},
      {"H100-SXM", "H100 SXM"},
      {"NVIDIA H100 80GB HBM3", "H100 SXM"},
      {"NVIDIA H100 PCIe", "H100 PCIe"},
      {"nvidia_h200", "H200"},
      {"NVIDIA GH200 480GB", "GH200"},
      {"NVIDIA A100-SXM4-80GB", "A100 80GB"},
      {"l4", "L4"},
      {"NVIDIA L40S", "L40S"},
      {"NVIDIA B200", "B200"},
  };
  for (const auto& [name, kind] : cases) EXPECT_EQ(kind_of(name), kind) << name;
}

TEST(GpuKinds, leave_others_and_parts_of_one_unknown) {
  for (const char* name : {"", "none", "mi300x", "NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
                           "NVIDIA A100-SXM4-40GB", "NVIDIA L40", "H1000", "----"})
    EXPECT_EQ(gpu_kind_called(name), nullptr) << name;
}

TEST(GpuKinds, have_all_numbers_and_are_found_by_their_own_names) {
  for (const GpuKind& kind : gpu_kinds()) {
    EXPECT_EQ(gpu_kind_called(kind.name), &kind) << kind.name;
    for (const double number :
         {kind.bf16_flops, kind.memory_bytes, kind.memory_bytes_s, kind.pcie_bytes_s, kind.watts})
      EXPECT_GT(number, 0) << kind.name;
    EXPECT_GT(kind.multiprocessors, 0) << kind.name;
    const double peak = config::peak_flops_of(kind.name);  // 0: not among its rows
    EXPECT_TRUE(peak == 0 || peak == kind.bf16_flops) << kind.name;
  }
}

}  // namespace
}  // namespace holdfast::launcher
