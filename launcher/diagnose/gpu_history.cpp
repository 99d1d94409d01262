#include "launcher/diagnose/gpu_history.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

constexpr double burst_apart_s = 5;      // errors closer than this are one event
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

/// The same node, and the same GPU as far as the texts show.
bool same_gpu(const SeenSign& a, const SeenSign& b) {
  if (a.node != b.node) return false;
  const std::string one = pci_address_in(a.sign.text), other = pci_address_in(b.sign.text);
  return one.empty() || other.empty() || one == other;
}

/// An Xid that a faulty program causes as well as a faulty GPU.
bool of_program(int number) {
  constexpr std::array numbers{13, 31, 32, 43, 69, 80};
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

bool GpuHistory::seen_before(const SeenSign& seen) const {
  std::vector<double> times;
  for (const SeenSign& s : signs_)
    if (s.sign.kind == "xid" && s.sign.code == seen.sign.code && same_gpu(s, seen) && s.at <= seen.at)
      times.push_back(s.at);
  std::sort(times.begin(), times.end());
  return std::adjacent_find(times.begin(), times.end(),
                            [](double a, double b) { return b - a > burst_apart_s; }) != times.end();
}

GpuAssessment GpuHistory::assess(const SeenSign& seen) const {
  GpuAssessment assessment;
  const int number = static_cast<int>(seen.sign.code);
  if (seen.sign.kind == "gpu_recovery") {
    assessment.action = action_of_recovery(number).value_or(XidAction::watch);
    assessment.says = assessment.action == XidAction::restart
                          ? "the driver requests that the GPU's peer traffic ends"
                          : "the driver requests a reset of the GPU or the node";
    return assessment;
  }
  expects(seen.sign.kind == "xid", "only Xids and recovery actions are assessed");
  const XidRow* row = row_of_xid(number);
  const bool again = seen_before(seen);
  assessment.action = action_of_xid(number, again);
  assessment.of_program = of_program(number);
  assessment.says = fmt::format("Xid {} ({}){}", number, row ? row->meaning : "not in the table",
                                again ? ", again on the same GPU" : "");
  assessment.advice = row ? row->advice : "ask NVIDIA's support about this Xid";
  for (const SeenSign& s : signs_) {
    if (s.sign.kind != "xid" || !same_gpu(s, seen) || std::abs(s.at - seen.at) > recovery_apart_s) continue;
    const auto named = action_named_in(s.sign.text);
    if (!named) continue;
    // A recovery action is no error of its own: it is about the Xid beside it.
    if (&s == &seen && *named == XidAction::ignore) return assessment;
    assessment.action = *named;
    if (&s != &seen) assessment.says += "; the driver's recovery action: " + s.sign.text;
  }
  return assessment;
}

}  // namespace holdfast::launcher
