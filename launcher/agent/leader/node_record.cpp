#include "launcher/agent/leader/node_record.hpp"

#include <charconv>
#include <nlohmann/json.hpp>

#include "slurm/exclusion.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;

std::string first_evidence(const json& event) {
  const auto found = event.find("evidence");
  if (found == event.end()) return "";
  if (found->is_string()) return *found;
  return found->is_array() && !found->empty() && found->front().is_string() ? found->front() : "";
}

bool ended_by_node(const json& event) {
  return event.value("event", "") == "attempt_ended" && event.value("blamed", false) &&
         !event.value("node", "").empty();
}

/// By a fault of the node, and not of the program there.
bool by_hardware(const json& event) { return event.value("blame", "") == "node"; }

/// "... Xid 79 ..." or "... Xid (PCI:0000:3b:00): 79, ..." -> 79; 0: none.
int xid_in(const std::string& text) {
  std::size_t at = text.find("Xid ");
  if (at == std::string::npos) return 0;
  if (at += 4; at < text.size() && text[at] == '(') at = text.find("): ", at);
  at = at == std::string::npos ? text.size() : text.find_first_of("0123456789", at);
  int number = 0;
  if (at != std::string::npos && at < text.size())
    std::from_chars(text.data() + at, text.data() + text.size(), number);
  return number;
}

}  // namespace

std::optional<LedgerEntry> ledger_entry(const json& event, const std::string& job) {
  // The loss of an active node is entered once: by the end of its attempt.
  const bool idle =
      event.value("event", "") == "node_lost" && event.contains("slot") && event["slot"].is_null();
  if (!idle && !ended_by_node(event)) return std::nullopt;
  LedgerEntry entry;
  entry.time = event.value("unix", 0.0);
  entry.job = job;
  entry.node = event.value("node", "");
  entry.cause = idle ? "node lost" : event.value("cause", "");
  entry.evidence = first_evidence(event);
  entry.hardware = idle || by_hardware(event);
  entry.xid = xid_in(entry.evidence);
  entry.gpu = event.value("gpu", "");
  return entry;
}

std::string admin_line(const json& event) {
  if (!ended_by_node(event) || !by_hardware(event)) return "";
  return slurm::drain_line(event.value("node", ""), event.value("cause", "") + ": " + first_evidence(event));
}

}  // namespace holdfast::launcher
