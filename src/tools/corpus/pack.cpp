#include "src/tools/corpus/pack.hpp"

#include <algorithm>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::corpus {

Packer::Packer(std::int64_t row, int open) : row_(row), most_(as_size(open)) {
  expects(row >= 1 && open >= 1, "a row to fill, and its length");
}

void Packer::add(std::int64_t document, std::int64_t tokens, std::vector<Row>& out) {
  expects(tokens >= 1, "a document of a token or more");
  const std::int64_t whole = tokens / row_ * row_, rest = tokens - whole;
  for (std::int64_t first = 0; first < whole; first += row_) out.push_back({{document, first, row_}});
  if (rest == 0) return;

  constexpr std::size_t none = -1;
  std::size_t best = none;
  for (std::size_t i = 0; i < open_.size(); ++i)
    if (open_[i].left >= rest && (best == none || open_[i].left < open_[best].left)) best = i;
  if (best == none) {
    best = open_.size();
    open_.push_back({row_, {}});
  }
  open_[best].placed.push_back({document, whole, rest});
  open_[best].left -= rest;
  if (open_[best].left == 0) {
    close(best, out);
  } else if (open_.size() > most_) {
    const auto fullest = std::min_element(open_.begin(), open_.end(),
                                          [](const Open& a, const Open& b) { return a.left < b.left; });
    close(as_size(fullest - open_.begin()), out);
  }
}

void Packer::finish(std::vector<Row>& out) {
  for (Open& one : open_) out.push_back(std::move(one.placed));
  open_.clear();
}

void Packer::close(std::size_t which, std::vector<Row>& out) {
  out.push_back(std::move(open_[which].placed));
  open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(which));
}

}  // namespace holdfast::corpus
