#include "launcher/agent/leader/node_record.hpp"

#include <charconv>

#include "launcher/diagnose/signs.hpp"
#include "slurm/exclusion.hpp"

namespace holdfast::launcher {
namespace {

std::string first_evidence(const events::AttemptEnded& e) {
  return e.evidence.empty() ? "" : e.evidence.front();
}

bool ended_by_node(const events::AttemptEnded& e) { return e.blamed && !e.node.empty(); }

/// By a fault of the node, and not of the program there, nor by the program's word alone.
bool by_hardware(const events::AttemptEnded& e) { return e.blame == name_of(Blame::node); }

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

std::optional<LedgerEntry> ledger_entry(const LogEntry& event, const std::string& job) {
  LedgerEntry entry;
  entry.time = event.envelope.unix;
  entry.job = job;
  // The loss of an active node is entered once: by the end of its attempt.
  const auto* lost = std::get_if<events::NodeLost>(&event.event);
  const auto* ended = std::get_if<events::AttemptEnded>(&event.event);
  if (lost && !lost->slot) {
    entry.node = lost->node;
    entry.cause = "node lost";
    entry.evidence = lost->evidence;
    entry.hardware = true;
  } else if (ended && ended_by_node(*ended)) {
    entry.node = ended->node;
    entry.cause = ended->cause;
    entry.evidence = first_evidence(*ended);
    entry.hardware = by_hardware(*ended);
    entry.gpu = ended->gpu;
  } else {
    return std::nullopt;
  }
  if (entry.hardware) entry.xid = xid_in(entry.evidence);
  return entry;
}

std::string admin_line(const events::AttemptEnded& ended) {
  if (!ended_by_node(ended) || !by_hardware(ended)) return "";
  return slurm::drain_line(ended.node, ended.cause + ": " + first_evidence(ended));
}

}  // namespace holdfast::launcher
