// next() goes through the ranges of a part. A file of plain text is one document. Of lines and of elements of
// an array, next_line() gives the next one that has a text: text_of() takes it from its key, or, of a
// conversation, writes what its template sees as JSON that is the same for every spelling. Malformed UTF-8 is
// repaired and counted. A blank line is skipped, an empty text counted, and a broken line goes to note(),
// which counts it or, under --strict, throws with its number in the file.
//
// When a range ends, close_range() throws if it is a whole file that gave no document. A file that was cut
// into ranges can only be judged when all of them are known (check_files() in prepare.cpp). --skip-bad-files
// lets both pass, and files that are no text. reject() takes back the document that was given out last.
#include "src/tools/corpus/reader.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"
#include "src/base/utf8.hpp"
#include "src/tools/chat/conversation.hpp"
#include "src/tools/corpus/text_documents.hpp"
#include "src/tools/corpus/tolerant_json.hpp"

namespace holdfast::corpus {
namespace {

constexpr std::size_t max_conversation = 8 << 20;  // as values, JSON takes up to forty times its bytes

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

/// Stands for a number that fits no 64 bits; no message may have one.
constexpr const char* no_number = "\\u0000 a number";

/// What a line's template sees, as JSON: the same for every spelling of the line. Why it is broken, or
/// nothing.
std::optional<std::string> read_conversation(std::string text, std::string& messages,
                                             std::uint64_t& repaired) {
  repaired += utf8::repair(text);
  text = tolerant_json(text, "\"" + std::string(no_number) + "\"", repaired);
  const auto line = json_from<nlohmann::ordered_json>(text);
  if (line.is_discarded())
    return nests_deeper(text, deepest_json) ? "its JSON is nested too deeply" : "it is no JSON";
  try {
    const nlohmann::ordered_json all = {{"messages", chat::messages_of(line)},
                                        {"extra", chat::extra_of(line)}};
    messages = all.dump();
    if (nests_deeper(messages, deepest_json)) return "its JSON is nested too deeply";
    if (messages.find(no_number) != std::string::npos)
      return "a number in its messages does not fit into 64 bits";
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

/// Lines before byte `end` of a plain file.
std::uint64_t lines_before(const std::filesystem::path& path, std::uint64_t end) {
  const auto stream = open_stream(path, Compression::none);
  std::string bytes(1 << 20, '\0');
  std::uint64_t lines = 0;
  for (std::size_t got = 1; end > 0 && got > 0; end -= got) {
    got = stream->read(bytes.data(), as_size(std::min<std::uint64_t>(bytes.size(), end)));
    lines += static_cast<std::uint64_t>(std::count(bytes.data(), bytes.data() + got, '\n'));
  }
  return lines;
}

}  // namespace

Error no_document_in(const std::filesystem::path& file, std::uint64_t lines, const std::string& first) {
  std::string hint = "leave such files out with --skip-bad-files?";
  if (first.find("it is no JSON") != std::string::npos)
    hint = "JSON Lines have one object a line: 'jq -c . " + file.string() +
           "' writes an object over several lines so, "
           "'jq -c .KEY[]' a list in one; or " +
           hint;
  else if (first.find("it has no key") != std::string::npos)
    hint = "Name the key of the text with --text-key, read conversations with --format chat, or " + hint;
  else
    hint[0] = 'L';
  std::string why = std::to_string(lines) + (lines == 1 ? " line; " : " lines; ") + first;
  if (why.ends_with('.')) why.pop_back();
  return {Exit::usage, "no document comes from " + file.string(), why, hint};
}

Reader::Reader(const Settings& settings, const std::vector<Input>& inputs, const Part& part, Tally& tally)
    : settings_(settings),
      inputs_(inputs),
      part_(part),
      tally_(tally),
      json_(settings.text_key),
      ranges_(part.size()) {}

bool Reader::next(Document& document) {
  for (; range_ < part_.size(); ++range_) {
    const Range& range = part_[range_];
    const Input& input = inputs_[range.input];
    document.input = range.input;
    if (input.format != Format::text) {
      if (next_line(document)) return true;
      close_range();
      if (input.compression != Compression::none) tally_.add(input.bytes);
      open_.reset();
      continue;
    }
    document.text = read_document(input.path, input.compression);
    document.line = document.begin = 0;
    tally_.add(input.bytes);
    if (document.text.find('\0') != std::string::npos) {
      refuse_binary(input.path);
      continue;
    }
    counts_.repaired += utf8::repair(document.text);
    if (document.text.empty()) {
      ++counts_.empty;
      continue;
    }
    ++counts_.documents;
    counts_.bytes += document.text.size();
    ++range_;
    return true;
  }
  return false;
}

std::optional<std::string> Reader::text_of(const Line& line, std::string& text) {
  if (line.too_long) return "it is longer than " + std::to_string(Lines::max_bytes >> 20) + " MiB";
  if (inputs_[part_[range_].input].format != Format::chat)
    return json_.read(line.text, text, counts_.repaired);
  if (line.text.size() > max_conversation)
    return "it is longer than " + std::to_string(max_conversation >> 20) + " MiB";
  return read_conversation(std::string(line.text), text, counts_.repaired);
}

bool Reader::next_line(Document& document) {
  const Range& range = part_[range_];
  const Input& input = inputs_[range.input];
  const bool plain = input.compression == Compression::none;
  if (!open_) {
    const std::uint64_t begin = range.begin > 0 ? range.begin - 1 : 0;
    auto stream = open_stream(input.path, input.compression, begin);
    if (input.array)
      open_ = std::make_unique<Elements>(std::move(stream), input.path);
    else
      open_ = std::make_unique<Lines>(std::move(stream), range.begin, plain ? range.end : UINT64_MAX);
  }
  for (Line line; open_->next(line);) {
    const std::uint64_t number = ++ranges_[range_].lines;
    tally_.add(plain ? line.text.size() + 1 : 0);
    if (line.begin == 0 && line.text.starts_with("\xEF\xBB\xBF")) line.text.remove_prefix(3);
    if (!line.too_long && is_blank(line.text)) continue;
    if (const auto why = text_of(line, document.text)) {
      note(number, line.begin, *why);
      continue;
    }
    if (document.text.empty()) {
      ++counts_.empty;
      if (ranges_[range_].left_out++ == 0) first_why_ = "its text is empty";
      continue;
    }
    document.line = number;
    document.begin = plain ? line.begin : 0;
    ++counts_.documents;
    ++ranges_[range_].documents;
    counts_.bytes += document.text.size();
    return true;
  }
  return false;
}

void Reader::reject(const Document& document, const std::string& why) {
  --counts_.documents;
  --ranges_[range_].documents;
  counts_.bytes -= document.text.size();
  note(document.line, document.begin, why);
}

/// A file of text that has bytes which no text has.
void Reader::refuse_binary(const std::filesystem::path& file) {
  const std::string why = "it has bytes of 0: it is no text, or in UTF-16";
  if (!settings_.skip_bad_files)
    throw Error(Exit::usage, "cannot use input " + file.string(), why,
                "Write it in UTF-8, or leave such files out with --skip-bad-files?");
  note(0, 0, why);
}

/// A file that was cut into ranges is looked at when all of them are known (check_files).
void Reader::close_range() {
  const Range& range = part_[range_];
  const Input& input = inputs_[range.input];
  const RangeCounts& counts = ranges_[range_];
  const bool whole = range.begin == 0 && range.end == input.bytes;
  if (whole && counts.documents == 0 && counts.left_out > 0 && !settings_.skip_bad_files)
    throw no_document_in(input.path, counts.lines, first_why_);
  first_why_.clear();
}

void Reader::note(std::uint64_t line, std::uint64_t begin, const std::string& why) {
  ++counts_.broken;
  if (ranges_[range_].left_out++ == 0) first_why_ = "line " + std::to_string(line) + ": " + why;
  const Range& range = part_[range_];
  if (settings_.strict && line > 0) {  // not of a whole file: --skip-bad-files has decided
    const auto& path = inputs_[range.input].path;
    const std::uint64_t before = range.begin > 0 ? lines_before(path, begin) + 1 : line;
    throw Error(Exit::usage,
                (inputs_[range.input].array ? "element " : "line ") + std::to_string(before) + " of " +
                    path.string() + " is broken",
                why, "Leave --strict out to count such lines and go on?");
  }
  if (broken_.size() < max_listed) broken_.push_back({static_cast<std::uint32_t>(range_), line, why});
}

}  // namespace holdfast::corpus
