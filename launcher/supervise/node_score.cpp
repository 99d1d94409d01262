#include "launcher/supervise/node_score.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/as_size.hpp"

namespace holdfast::launcher {
namespace {

using What = NodeMark::What;

constexpr double fading_s = 7 * 86400.0;
constexpr double least_weight = 0.05;  // of a failure three weeks ago

bool is_failure(What what) { return what <= What::critical; }
bool is_of_check(What what) { return what == What::critical || what == What::warned; }

const char* name_of(What what) {
  constexpr std::array names = {"lost",     "ended an attempt", "evicted", "computed wrongly",
                                "critical", "warned",           "slow",    "perhaps computed wrongly"};
  static_assert(names.size() == as_size(What::doubted) + 1);
  return names[as_size(what)];
}

}  // namespace

double faded(double age_s) { return std::exp(-std::max(0.0, age_s) / fading_s); }

int whole_failures(double weight) {
  return static_cast<int>(std::ceil(std::max(0.0, weight - least_weight)));
}

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

}  // namespace holdfast::launcher
