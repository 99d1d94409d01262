#pragma once
// Assesses the Xids of a job: first the driver's recovery action, then the table, then whether the same
// number has come from the same GPU before. Pure.
#include <string>
#include <vector>

#include "launcher/diagnose/diagnosis.hpp"
#include "launcher/diagnose/xid.hpp"

namespace holdfast::launcher {

struct GpuAssessment {
  XidAction action = XidAction::ignore;
  bool of_program = false;  ///< programs cause this number, too
  std::string says;
  const char* advice = "";
};

class GpuHistory {
 public:
  explicit GpuHistory(const std::vector<SeenSign>& signs) : signs_(signs) {}
  /// `seen`: one of the signs, of kind "xid" or "gpu_recovery".
  GpuAssessment assess(const SeenSign& seen) const;

 private:
  bool seen_before(const SeenSign& seen) const;
  const std::vector<SeenSign>& signs_;
};

/// The GPU that a kernel line or a sign names: its UUID ("GPU-5f1b..."), else its PCI address ("0000:3b:00"),
/// else "".
std::string gpu_named_in(const std::string& text);

}  // namespace holdfast::launcher
