#include "src/tools/chat/conversation.hpp"

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::chat {
namespace {

using Json = nlohmann::ordered_json;
using Range = std::pair<std::size_t, std::size_t>;

std::size_t common(std::string_view a, std::string_view b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return as_size(end - a.begin());
}

/// Where the template's own words end that `place` lies in; `place` when it lies in none.
std::size_t end_of_own(const Rendered& rendered, std::size_t place) {
  for (const auto& [first, end] : rendered.own)
    if (first <= place && place < end) return end;
  return place;
}

/// Where the template's own words begin that end `of`; `of` when it ends with others.
std::size_t start_of_own(const Rendered& rendered, std::size_t of) {
  for (const auto& [first, end] : rendered.own)
    if (first < of && of <= end) return first;
  return of;
}

/// The bytes that a turn adds to the whole conversation, or why they cannot be told.
struct Turn {
  std::optional<Range> range;
  std::string why;
};

/// A system message that the template shows before an answer, and not in the conversation that has it.
bool loses_system(const Json& messages, const std::string& prompt, const std::string& whole) {
  const Json content = messages.front().value("content", Json());
  return messages.front().value("role", "") == "system" && content.is_string() && content != "" &&
         prompt.find(content.get<std::string>()) != std::string::npos &&
         whole.find(content.get<std::string>()) == std::string::npos;
}

/// Turn `number` of `whole`; no range when it is not what it was when it was said.
Turn turn_in(const Rendered& whole, const Json& messages, std::size_t number, const Template& chat,
             const Json& extra) {
  Json so_far(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(number));
  const std::string prompt = chat.render(so_far, true, extra).text;
  std::size_t first = common(prompt, whole.text);
  if (first < prompt.size()) {
    // The prompt may open what no turn in a conversation has, such as thoughts.
    const std::string before = chat.render(so_far, false, extra).text;
    if (!whole.text.starts_with(before))
      return {
          {},
          loses_system(messages, prompt, whole.text)
              ? "the template writes the system message only before an answer that is still to come; put it "
                "into the first message of the user, and it is in all of them"
              : "the template writes what comes before an answer differently once the answer is there"};
    first = std::min(first, end_of_own(whole, before.size()));
  }
  if (number + 1 == messages.size()) return {Range{first, whole.text.size()}, {}};
  so_far.push_back(messages[number]);
  const Rendered with = chat.render(so_far, false, extra);
  // Some templates end a conversation with words that do not stay there when it goes on.
  const std::size_t end = common(with.text, whole.text);
  if (end < with.text.size() && end < start_of_own(with, with.text.size()))
    return {{}, "the template changes what the assistant said as the conversation goes on"};
  return {Range{first, std::max(first, end)}, {}};
}

class Marker {
 public:
  Marker(const Rendered& rendered, const text::Tokenizer& tokenizer, Example& example)
      : rendered_(rendered), tokenizer_(tokenizer), example_(example) {
    tokenizer.encode_template_at(rendered.text, rendered.own, example.tokens, begins_);
    expects(begins_.size() == example.tokens.size(), "every token begins somewhere");
    begins_.push_back(rendered.text.size());
    example.learned.assign(example.tokens.size(), false);
  }

  /// Tokens that have a byte of the range. `trimmed`: but not what follows the token that ends a turn.
  void mark(const Range& range, bool trimmed, bool learned = true) {
    if (range.first >= range.second) return;
    const auto below = [](std::size_t begin, std::size_t place) { return begin < place; };
    const auto last = begins_.end() - 1;
    auto first = std::lower_bound(begins_.begin(), last, range.first, below);
    const auto end = std::lower_bound(first, last, range.second, below);
    if (first != begins_.begin() && *first > range.first) --first;  // it began earlier, and reaches into it
    auto to = as_size(end - begins_.begin());
    if (trimmed) to = behind_end_token(range, to);
    for (auto i = as_size(first - begins_.begin()); i < to; ++i) example_.learned[i] = learned;
  }

 private:
  bool is_special(text::Token token) const {
    return tokenizer_.decode({&token, 1}).empty() && !tokenizer_.decode({&token, 1}, true).empty();
  }

  /// The last special token that the template itself wrote at the end of the range ends the turn.
  std::size_t behind_end_token(const Range& range, std::size_t to) const {
    const std::size_t tail = std::max(start_of_own(rendered_, range.second), range.first);
    for (std::size_t i = to; i-- > 0 && begins_[i] >= tail;)
      if (begins_[i + 1] <= range.second && is_special(example_.tokens[i])) return i + 1;
    return to;
  }

  const Rendered& rendered_;
  const text::Tokenizer& tokenizer_;
  Example& example_;
  std::vector<std::size_t> begins_;  ///< of each token, and the size of the text
};

}  // namespace

Example tokenize(const Json& messages, const Template& chat, const text::Tokenizer& tokenizer,
                 const Json& extra) {
  Json shown = messages;  // templates do not see what is learned
  for (Json& message : shown)
    if (message.is_object()) message.erase("train");
  const Rendered whole = chat.render(shown, false, extra);
  Example example;
  Marker marker(whole, tokenizer, example);
  for (const Range& answer : whole.answers) marker.mark(answer, false);
  int turns = 0, left_out = 0;
  std::string why;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].value("role", "") != "assistant") continue;
    ++turns;
    const bool wanted = messages[i].value("train", true);
    left_out += wanted ? 0 : 1;
    if (whole.answers.empty() != wanted) continue;  // marked by the template, or not to be marked at all
    const Turn turn = turn_in(whole, shown, i, chat, extra);
    if (!turn.range && !wanted)
      throw Error(Exit::usage, "the answer that is not to be learned cannot be told from the others",
                  turn.why);
    if (turn.range) {
      marker.mark(*turn.range, wanted, wanted);
      continue;
    }
    ++example.rewritten;
    if (why.empty()) why = turn.why;
  }
  if (std::find(example.learned.begin(), example.learned.end(), true) == example.learned.end())
    throw Error(Exit::usage, "there is nothing to learn from this conversation",
                turns == 0          ? "the assistant says nothing in it"
                : turns == left_out ? "all of its answers are marked as not to be learned"
                : why.empty()       ? "the template marks nothing as said by the assistant"
                                    : why,
                why.empty() ? "" : "Give another template with --chat FOLDER?");
  return example;
}

}  // namespace holdfast::chat
