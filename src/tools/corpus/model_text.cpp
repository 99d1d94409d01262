#include "src/tools/corpus/model_text.hpp"

#include "src/tools/corpus/split.hpp"

namespace holdfast::corpus {

ModelText::ModelText(const Plan& plan, const Watch& watch)
    : plan_(plan),
      watch_(watch),
      bytes_(static_cast<std::uint64_t>(static_cast<double>(total_bytes(plan.inputs)) *
                                        (1 - plan.settings.val_fraction))) {
  std::string_view none;
  pieces_.next(none);  // nothing is open yet
}

bool ModelText::next_document() {
  for (; part_ < plan_.parts.size(); ++part_, reader_.reset()) {
    if (!reader_)
      reader_ = std::make_unique<Reader>(plan_.settings, plan_.inputs, plan_.parts[part_], tally_);
    while (reader_->next(document_)) {
      if (watch_.check) watch_.check();
      if (watch_.progress) watch_.progress("tokenizer", tally_.done(), total_bytes(plan_.inputs));
      const std::string_view text = sides_of(plan_, document_).train;
      if (text.empty()) continue;
      pieces_ = Pieces(text);
      return true;
    }
  }
  return false;
}

bool ModelText::next(std::string& piece) {
  std::string_view found;
  while (!pieces_.next(found))
    if (!next_document()) return false;
  piece = found;
  return true;
}

}  // namespace holdfast::corpus
