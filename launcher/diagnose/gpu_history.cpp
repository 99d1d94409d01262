// assess() judges one Xid in this order. A later rule overrides what an earlier one has said.
//
// 1. The table (xid.hpp): what NVIDIA requires for this number, and whether programs cause it, too.
// 2. Xid 74: the registers in its text, how often their bits have come from this link, and whether other
//    errors are beside it. Without registers the assessment is `unclear`.
// 3. Another one that restarts ranks (but not 94): if a rank that has had it on this GPU had it on another
//    node, it is the program. Beside an error of the hardware it is the node, which is replaced if the number
//    has come before, or, without such an error, if this GPU has shown it to several ranks.
// 4. A recovery action that the driver names for the same GPU within 10 s of this Xid.
//
// A GPU is known by the PCI address in the texts. Without it, Xids of a node count as of one GPU, but not a
// PastXid.
#include "launcher/diagnose/gpu_history.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "launcher/diagnose/nvlink_fault.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

constexpr int nvlink_error = 74;
constexpr double burst_apart_s = 5;      // errors closer than this are one event
constexpr double beside_s = 30;          // what NVIDIA's workflows call "beside" another Xid
constexpr double recovery_apart_s = 10;  // the driver names its recovery action soon after the error

bool hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

/// "0000:3b:00" of "PCI:0000:3b:00.0" or "00000000:3B:00.0", in lower case; "" when there is none.
std::string pci_address_in(const std::string& text) {
  for (std::size_t colon = text.find(':'); colon != std::string::npos; colon = text.find(':', colon + 1)) {
    if (colon < 4 || colon + 5 >= text.size() || text[colon + 3] != ':') continue;
    const std::string candidate = text.substr(colon - 4, 10);
    constexpr std::string_view form = "hhhh:hh:hh";
    const bool fits = std::equal(candidate.begin(), candidate.end(), form.begin(), form.end(),
                                 [](char c, char f) { return f == 'h' ? hex(c) : c == f; });
    if (!fits) continue;
    return lower(candidate);
  }
  return "";
}

/// Xids of the GPU's hardware. Beside one of them, on the same GPU, an Xid that programs cause, too, is not
/// the program's.
bool of_hardware(int number) {
  constexpr std::array numbers{48, 63, 64, 74, 94};
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

}  // namespace

std::string gpu_named_in(const std::string& text) {
  const auto at = text.find("GPU-");
  if (at == std::string::npos) return pci_address_in(text);
  auto end = at + 4;
  while (end < text.size() && (hex(text[end]) || text[end] == '-')) ++end;
  return end > at + 12 ? text.substr(at, end - at) : pci_address_in(text);
}

std::string node_name(const std::vector<std::string>& names, int node) {
  if (node < 0) return "a node";
  const auto i = as_size(node);
  return i < names.size() ? names[i] : fmt::format("node {}", node);
}

GpuHistory::GpuHistory(const std::vector<SeenSign>& signs, const std::vector<PastXid>& past,
                       const std::vector<std::string>& names)
    : signs_(signs), past_(past), names_(names) {
  for (const SeenSign& seen : signs)
    pci_.push_back(
        seen.sign.kind == "xid" || seen.sign.kind == "gpu_recovery" ? pci_address_in(seen.sign.text) : "");
}

/// As far as the texts show.
bool GpuHistory::same_gpu(std::size_t a, std::size_t b) const {
  return signs_[a].node == signs_[b].node && (pci_[a].empty() || pci_[b].empty() || pci_[a] == pci_[b]);
}

bool GpuHistory::beside(std::size_t a, std::size_t b, double apart_s) const {
  return a != b && std::abs(signs_[a].at - signs_[b].at) <= apart_s;
}

bool GpuHistory::hardware_beside(std::size_t at) const {
  for (std::size_t i = 0; i < signs_.size(); ++i)
    if (signs_[i].sign.kind == "xid" && of_hardware(static_cast<int>(signs_[i].sign.code)) &&
        beside(at, i, beside_s) && same_gpu(at, i))
      return true;
  return false;
}

/// The same number on another GPU, at the same time: ranks of one program have the same error.
bool GpuHistory::of_several_gpus(std::size_t at) const {
  for (std::size_t i = 0; i < signs_.size(); ++i)
    if (signs_[i].sign.kind == "xid" && signs_[i].sign.code == signs_[at].sign.code &&
        beside(at, i, beside_s) && !same_gpu(at, i))
      return true;
  return false;
}

bool GpuHistory::seen_before(std::size_t at) const {
  const SeenSign& seen = signs_[at];
  for (std::size_t i = 0; i < signs_.size(); ++i)
    if (signs_[i].sign.kind == "xid" && signs_[i].sign.code == seen.sign.code && same_gpu(at, i) &&
        signs_[i].at < seen.at - burst_apart_s)
      return true;
  return std::any_of(past_.begin(), past_.end(), [&](const PastXid& past) { return is_of(past, at); });
}

/// The same number, of the same GPU by its address.
bool GpuHistory::is_of(const PastXid& past, std::size_t at) const {
  return past.xid == signs_[at].sign.code && past.node == signs_[at].node && !pci_[at].empty() &&
         pci_address_in(past.text) == pci_[at];
}

/// An Xid for which NVIDIA has the program restarted: a fault of the program, or of the GPU. A bug of the
/// program comes again with its rank, wherever that runs, so that the same number of the same rank says
/// nothing of the GPU. The GPU is to blame when it shows the number to ranks that show it nowhere else, or
/// beside an error of its hardware.
void GpuHistory::assess_restart(std::size_t at, const std::vector<int>& ranks, GpuAssessment& out) const {
  const SeenSign& seen = signs_[at];
  constexpr int contained = 94;  // of its hardware; the GPU is usable, and a reset can wait
  if (seen.sign.code == contained) return;
  std::vector<int> shown_to = ranks;  // this GPU has shown it to these ranks
  for (const PastXid& past : past_)
    if (past.rank >= 0 && is_of(past, at) &&
        std::find(shown_to.begin(), shown_to.end(), past.rank) == shown_to.end())
      shown_to.push_back(past.rank);
  for (const PastXid& past : past_)
    if (past.xid == seen.sign.code && past.node != seen.node &&
        std::find(shown_to.begin(), shown_to.end(), past.rank) != shown_to.end()) {
      out.blame = Blame::program;
      out.says += fmt::format(", which rank {} has had on {}, too", past.rank, node_name(names_, past.node));
      return;
    }
  const bool again = seen_before(at);
  if (again) out.says += ", again on the same GPU";
  if (hardware_beside(at)) {
    out.blame = Blame::node;
    out.says += ", beside an error of its hardware";
    if (again) out.action = XidAction::substitute;
  } else if (ranks.size() == 1 && shown_to.size() > 1 && !of_several_gpus(at)) {
    out.blame = Blame::node;
    out.says += fmt::format(", to ranks {}", fmt::join(shown_to, " and "));
    out.action = XidAction::substitute;
  }
}

void GpuHistory::assess_nvlink(std::size_t at, GpuAssessment& out) const {
  const auto fault = nvlink_fault_in(signs_[at].sign.text);
  if (!fault) {
    out.unclear = true;
    return;
  }
  std::vector<double> times;
  bool others = false;
  for (std::size_t i = 0; i < signs_.size(); ++i) {
    const control::Sign& sign = signs_[i].sign;
    const bool xid = sign.kind == "xid" && same_gpu(at, i);
    if (beside(at, i, beside_s) && signs_[i].node == signs_[at].node)
      others = others || sign.kind == "nvlink_error" ||
               (xid && sign.code != nvlink_error &&
                action_of_xid(static_cast<int>(sign.code)) >= XidAction::restart);
    if (!xid || sign.code != nvlink_error || signs_[i].at > signs_[at].at) continue;
    if (const auto before = nvlink_fault_in(sign.text); before && same_fault(*fault, *before))
      times.push_back(signs_[i].at);
  }
  std::sort(times.begin(), times.end());
  int seen = 0;
  for (std::size_t i = 0; i < times.size(); ++i) seen += i == 0 || times[i] - times[i - 1] > burst_apart_s;
  const NvlinkVerdict verdict = verdict_of(*fault, seen, others);
  out.action = verdict.action;
  out.says = fmt::format("Xid 74 (NVLink {}: {}; NVIDIA: {}){}", fault->link, verdict.meaning, verdict.nvidia,
                         seen > 1 ? fmt::format(", {} times on this link", seen) : "");
}

GpuAssessment GpuHistory::assess(std::size_t at, const std::vector<int>& ranks) const {
  const SeenSign& seen = signs_[at];
  GpuAssessment out;
  const int number = static_cast<int>(seen.sign.code);
  if (seen.sign.kind == "gpu_recovery") {
    out.action = action_of_recovery(number).value_or(XidAction::watch);
    out.says = out.action == XidAction::restart ? "the driver requests that the GPU's peer traffic ends"
                                                : "the driver requests a reset of the GPU or the node";
    return out;
  }
  expects(seen.sign.kind == "xid", "only Xids and recovery actions are assessed");
  const XidRow* row = row_of_xid(number);
  out.action = action_of_xid(number);
  if (row && row->of_program) out.blame = Blame::program;
  out.says = row ? fmt::format("Xid {} ({}; NVIDIA: {})", number, row->meaning, row->nvidia)
                 : fmt::format("Xid {} (not in the table)", number);
  out.advice = row ? row->advice : "ask NVIDIA's support about this Xid";
  if (number == nvlink_error)
    assess_nvlink(at, out);
  else if (out.action == XidAction::restart)
    assess_restart(at, ranks, out);
  for (std::size_t i = 0; i < signs_.size(); ++i) {
    if (signs_[i].sign.kind != "xid" || (i != at && !beside(at, i, recovery_apart_s)) || !same_gpu(at, i))
      continue;
    const auto named = action_named_in(signs_[i].sign.text);
    if (!named) continue;
    // A recovery action is no error of its own: it is about the Xid beside it.
    if (i == at && *named == XidAction::ignore) return out;
    out.action = *named;
    out.unclear = false;
    if (*named == XidAction::substitute) out.blame = Blame::node;
    if (i != at) out.says += "; the driver's recovery action: " + signs_[i].sign.text;
  }
  return out;
}

}  // namespace holdfast::launcher
