#pragma once
// Signs of the node's GPUs, by NVIDIA's management library where there is one.
#include <memory>

#include "launcher/agent/signs/sign_sources.hpp"

namespace holdfast::nvml {
class Library;
}

namespace holdfast::launcher {

class GpuSigns : public SignSource {
 public:
  /// Loads the library at the first poll: with a sick GPU that may take long.
  explicit GpuSigns(std::string library);
  ~GpuSigns() override;
  /// Xids and double-bit errors as the driver reports them; recovery action, row remaps, links, thermal
  /// slowdown and loss of each GPU when they change.
  std::vector<control::Sign> poll() override;
  bool absent() const override { return tried_ && !library_; }

 private:
  struct Gpu;
  bool load();
  void take_events(std::vector<control::Sign>& out);
  void poll_gpu(Gpu& gpu, bool closely, std::vector<control::Sign>& out) const;

  std::string name_;
  bool tried_ = false;
  int polls_ = 0;
  std::unique_ptr<nvml::Library> library_;
  std::vector<Gpu> gpus_;
};

}  // namespace holdfast::launcher
