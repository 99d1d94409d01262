#pragma once
// Which text is learned from and which is held out.
#include <string_view>

#include "src/tools/corpus/document.hpp"
#include "src/tools/corpus/plan.hpp"

namespace holdfast::corpus {

/// A document's text. One of them is empty, except of a text that the tail's border cuts in two.
struct Sides {
  std::string_view train, validation;
};
Sides sides_of(const Plan& plan, const Document& document);

/// Is a document held out whose content has this hash? A share `val_fraction` of all hashes is.
bool is_held_out(const data::Hash128& hash, double val_fraction);

}  // namespace holdfast::corpus
