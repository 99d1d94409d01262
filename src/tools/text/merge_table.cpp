#include "src/tools/text/merge_table.hpp"

#include <algorithm>
#include <bit>
#include <functional>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"

namespace holdfast::text {
namespace {

constexpr std::size_t short_word = 48;  // tokens; up to here looking at all of them is quicker than a heap

}  // namespace

MergeTable::MergeTable(std::span<const MergeRule> rules) {
  expects(rules.size() < no_rank / 2, "fewer than 2^31 merges");
  entries_.resize(std::bit_ceil(2 * rules.size() + 2));
  mask_ = entries_.size() - 1;
  for (const MergeRule& rule : rules) {
    const std::uint64_t key = key_of(rule.left, rule.right);
    std::size_t at = place(key);
    while (entries_[at].key != empty && entries_[at].key != key) at = (at + 1) & mask_;
    entries_[at] = {key, rule.rank, rule.whole};
  }
}

std::size_t MergeTable::place(std::uint64_t key) const { return mix64(key) & mask_; }

void WordMerger::merge(std::vector<Token>& tokens) {
  if (tokens.size() < 2) return;
  if (tokens.size() <= short_word)
    merge_short(tokens);
  else
    merge_long(tokens);
}

void WordMerger::merge_short(std::vector<Token>& tokens) {
  pairs_.clear();
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
    pairs_.push_back(table_->find(tokens[i], tokens[i + 1]));
  while (!pairs_.empty()) {
    const auto best = std::min_element(pairs_.begin(), pairs_.end(),
                                       [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (best->rank == MergeTable::no_rank) return;
    const auto at = best - pairs_.begin();
    tokens[at] = best->whole;
    tokens.erase(tokens.begin() + at + 1);
    pairs_.erase(best);
    const auto i = as_size(at);
    if (i > 0) pairs_[i - 1] = table_->find(tokens[i - 1], tokens[i]);
    if (i < pairs_.size()) pairs_[i] = table_->find(tokens[i], tokens[i + 1]);
  }
}

void WordMerger::merge_long(std::vector<Token>& tokens) {
  expects(tokens.size() < std::size_t{1} << 31, "a word is below 2 GiB");
  const auto count = static_cast<std::int32_t>(tokens.size());
  symbols_.clear();
  heap_.clear();
  for (std::int32_t i = 0; i < count; ++i) symbols_.push_back({tokens[i], i - 1, i + 1 < count ? i + 1 : -1});
  const auto symbol = [&](std::int32_t i) -> Symbol& { return symbols_[i]; };
  const auto consider = [&](std::int32_t left, bool push) {
    if (left < 0 || symbol(left).after < 0) return;
    const Token a = symbol(left).token, b = symbol(symbol(left).after).token;
    const MergeTable::Found found = table_->find(a, b);
    if (found.rank == MergeTable::no_rank) return;
    heap_.push_back({found.rank, left, a, b, found.whole});
    if (push) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  };
  for (std::int32_t i = 0; i < count; ++i) consider(i, false);
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = symbol(best.at);
    // A candidate is stale once either of its tokens went into another merge; -1 marks what is gone.
    if (left.token != best.left || left.after < 0 || symbol(left.after).token != best.right) continue;
    Symbol& right = symbol(left.after);
    left.token = best.whole;
    left.after = right.after;
    right.token = -1;
    if (left.after >= 0) symbol(left.after).before = best.at;
    consider(left.before, true);
    consider(best.at, true);
  }
  std::size_t kept = 0;
  for (const Symbol& s : symbols_) {
    if (s.token >= 0) tokens[kept++] = s.token;
  }
  tokens.resize(kept);
}

}  // namespace holdfast::text
