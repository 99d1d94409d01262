#pragma once
// Which GPU is a rank's, and in whose words it is said that there is none.
#include <string>
#include <vector>

#include "src/device/device.hpp"

namespace holdfast::cuda {

/// What can be asked before a GPU is touched. CUDA counts versions as 12040 for 12.4.
struct VisibleGpus {
  struct Gpu {
    std::string name, bus;
    int major = 0, minor = 0;  ///< compute capability
  };
  int cuda_of_driver = 0;    ///< newest CUDA that the driver serves; 0: there is no driver
  std::string driver = {};   ///< "550.54.15"; "" when not known
  std::string failure = {};  ///< why CUDA shows no GPU; "" when it does
  std::vector<Gpu> gpus = {};
  int on_node = -1;  ///< GPUs of the node that the management library names; -1: not known
  bool one_was_given =
      false;  ///< somebody (srun, the user) shows this rank one GPU of the node: it is its own
};

/// Index into `gpus` for this rank. `share`: several ranks may use one GPU (for tests: they take turns on
/// it). Throws device::Unavailable with what is missing.
int which_gpu(const VisibleGpus& visible, const device::DeviceOptions& options, bool share);

}  // namespace holdfast::cuda
