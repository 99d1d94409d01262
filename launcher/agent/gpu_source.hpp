#pragma once
// Signs of the node's GPUs, by NVIDIA's management library where there is one.
#include <memory>

#include "launcher/agent/sign_sources.hpp"

namespace holdfast::nvml {
class Library;
}

namespace holdfast::launcher {

class GpuSigns : public SignSource {
 public:
  /// Loads the library at the first look: with a sick GPU that may take long.
  explicit GpuSigns(std::string library);
  ~GpuSigns() override;
  /// Xids and double-bit errors as the driver tells them; recovery action, row remaps, links, heat and loss
  /// of each GPU when they change.
  std::vector<control::Sign> look() override;
  bool barren() const override { return tried_ && !library_; }

 private:
  struct Gpu;
  bool load();
  void take_events(std::vector<control::Sign>& out);
  void look_at(Gpu& gpu, bool closely, std::vector<control::Sign>& out) const;

  std::string name_;
  bool tried_ = false;
  int looks_ = 0;
  std::unique_ptr<nvml::Library> library_;
  std::vector<Gpu> gpus_;
};

}  // namespace holdfast::launcher
