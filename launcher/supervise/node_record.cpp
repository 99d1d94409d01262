#include "launcher/supervise/node_record.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <utility>

#include "launcher/diagnose/signs.hpp"
#include "launcher/supervise/run_state.hpp"
#include "src/base/as_size.hpp"

namespace holdfast::launcher {
namespace {

using What = NodeMark::What;

// A node that fails again and again ends many jobs: with more weight than this it is a bad node.
constexpr double bad_node_weight = 3;
constexpr std::size_t max_bad_nodes = 8;

bool is_failure(What what) { return what <= What::critical; }
bool is_of_check(What what) { return what == What::critical || what == What::warned; }

const char* name_of(What what) {
  constexpr std::array names = {"lost",     "ended an attempt", "evicted", "computed wrongly",
                                "critical", "warned",           "slow",    "perhaps computed wrongly"};
  static_assert(names.size() == as_size(What::doubted) + 1);
  return names[as_size(what)];
}

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

void NodePast::add(const NodeMark& mark) {
  const auto same = [&](const NodeMark& other) {
    return other.job_term == mark.job_term && other.attempt == mark.attempt &&
           (is_failure(mark.what) ? is_failure(other.what) : other.what == mark.what);
  };
  if (std::none_of(marks_.begin(), marks_.end(), same)) marks_.push_back(mark);
}

void NodePast::checked_ok() {
  std::erase_if(marks_, [](const NodeMark& mark) { return is_of_check(mark.what); });
}

void NodePast::checked(const NodeMark& found) {
  checked_ok();
  add(found);
}

double NodePast::failure_weight(double now) const {
  double weight = 0;
  for (const auto& mark : marks_)
    if (is_failure(mark.what)) weight += faded(now - mark.at);
  return weight;
}

NodeScore NodePast::score(double now) const {
  double doubts = 0;
  for (const auto& mark : marks_)
    if (!is_failure(mark.what)) doubts += faded(now - mark.at);
  return {.failures = whole_failures(failure_weight(now)), .in_ledger = 0, .doubts = whole_failures(doubts)};
}

std::string NodePast::in_words(double now) const {
  std::array<int, as_size(What::doubted) + 1> counts{};
  for (const auto& mark : marks_)
    if (whole_failures(faded(now - mark.at)) > 0) ++counts[as_size(mark.what)];
  std::string text;
  for (std::size_t what = 0; what < counts.size(); ++what) {
    if (counts[what] == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(name_of(static_cast<What>(what)));
    if (counts[what] > 1) text += " " + std::to_string(counts[what]) + " times";
  }
  return text;
}

std::vector<NodeFault> faults_in(const Event& event) {
  std::vector<NodeFault> out;
  if (const auto* lost = std::get_if<events::NodeLost>(&event)) {
    out.push_back({lost->node, What::lost});
  } else if (const auto* evicted = std::get_if<events::NodeEvicted>(&event)) {
    out.push_back({evicted->node, What::evicted});
  } else if (const auto* slow = std::get_if<events::Straggler>(&event)) {
    out.push_back({slow->node, What::slow});
  } else if (const auto* ended = std::get_if<events::AttemptEnded>(&event)) {
    if (ended->blamed && !ended->node.empty()) out.push_back({ended->node, What::ended_attempt});
  } else if (const auto* wrong = std::get_if<events::SilentCorruption>(&event)) {
    for (const auto& node : wrong->nodes)
      out.push_back({node, wrong->nodes.size() == 1 ? What::computed_wrongly : What::doubted});
  }
  return out;
}

std::optional<LedgerEntry> ledger_entry(const LogEntry& event, const std::string& job) {
  const auto faults = faults_in(event.event);
  const auto* lost = std::get_if<events::NodeLost>(&event.event);
  const auto* ended = std::get_if<events::AttemptEnded>(&event.event);
  if (ended ? faults.empty() : !lost || lost->slot) return std::nullopt;
  LedgerEntry entry;
  entry.time = event.envelope.unix;
  entry.job = job;
  entry.node = faults.front().node;
  if (lost) {
    entry.cause = "node lost";
    entry.evidence = lost->evidence;
  } else {
    entry.cause = ended->cause;
    entry.evidence = ended->evidence.empty() ? "" : ended->evidence.front();
    entry.gpu = ended->gpu;
    // By a fault of the node, and not of the program there, nor by the program's word alone.
    entry.hardware = ended->blame == name_of(Blame::node);
  }
  if (entry.hardware) entry.xid = xid_in(entry.evidence);
  return entry;
}

std::vector<std::string> to_exclude(const RunState& state) {
  return {state.lost.begin(), state.lost.end()};  // the evicted are among them
}

UnwantedNodes unwanted_nodes(const RunState& state, const std::map<std::string, NodeHistory>& ledger) {
  std::map<std::string, double> weights;
  for (const auto& [node, history] : ledger) weights[node] = history.weight;
  for (const auto& [node, past] : state.pasts)
    weights[node] = std::max(weights[node], past.failure_weight(state.last_at));
  std::vector<std::pair<double, std::string>> bad;
  for (const auto& [node, weight] : weights)
    if (weight > bad_node_weight && !state.lost.contains(node)) bad.emplace_back(-weight, node);
  std::sort(bad.begin(), bad.end());
  if (bad.size() > max_bad_nodes) bad.resize(max_bad_nodes);
  std::set<std::string> doubtful;
  for (const auto& [weight, node] : bad) doubtful.insert(node);
  return {state.outcome ? state.outcome->exclude : std::vector<std::string>{},
          {doubtful.begin(), doubtful.end()}};
}

}  // namespace holdfast::launcher
