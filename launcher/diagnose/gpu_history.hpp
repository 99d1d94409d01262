#pragma once
// Assesses the Xids of a job: first the driver's recovery action, then the table (xid.hpp), then what the
// same GPU, and the same rank on other nodes, has shown before. Pure.
#include <string>
#include <vector>

#include "launcher/diagnose/diagnosis.hpp"
#include "launcher/diagnose/xid.hpp"

namespace holdfast::launcher {

struct GpuAssessment {
  XidAction action = XidAction::ignore;
  Blame blame = Blame::node;
  bool unclear = false;  ///< an NVLink error without registers: what else is known weighs more
  std::string says;
  const char* advice = "";
};

class GpuHistory {
 public:
  /// `past`: by which Xids earlier attempts of the job have ended.
  GpuHistory(const std::vector<SeenSign>& signs, const std::vector<PastXid>& past,
             const std::vector<std::string>& names);
  /// `at`: index of one of the signs, of kind "xid" or "gpu_recovery". `ranks` of its node that may have
  /// caused it.
  GpuAssessment assess(std::size_t at, const std::vector<int>& ranks) const;

 private:
  void assess_restart(std::size_t at, const std::vector<int>& ranks, GpuAssessment& out) const;
  void assess_nvlink(std::size_t at, GpuAssessment& out) const;
  bool same_gpu(std::size_t a, std::size_t b) const;
  bool beside(std::size_t a, std::size_t b, double apart_s) const;
  bool hardware_beside(std::size_t at) const;
  bool of_several_gpus(std::size_t at) const;
  bool seen_before(std::size_t at) const;
  bool is_of(const PastXid& past, std::size_t at) const;

  const std::vector<SeenSign>& signs_;
  const std::vector<PastXid>& past_;
  const std::vector<std::string>& names_;
  std::vector<std::string> pci_;  ///< of the GPU of each Xid, "" where its text does not say
};

/// The GPU that a kernel line or a sign names: its UUID ("GPU-5f1b..."), else its PCI address ("0000:3b:00"),
/// else "".
std::string gpu_named_in(const std::string& text);
/// The name of a node, for people.
std::string node_name(const std::vector<std::string>& names, int node);

}  // namespace holdfast::launcher
