#include "launcher/supervise/journal.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/supervise/valid_events.hpp"
#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {
using nlohmann::json;

std::string four_digits(int number) {
  const std::string text = std::to_string(number);
  return text.size() < 4 ? std::string(4 - text.size(), '0') + text : text;
}

std::string file_of(int term) { return four_digits(term) + ".jsonl"; }

std::set<int> terms_of(const RunDir& run) {
  std::set<int> terms;
  for (const auto& name : files::list_or_fail(run.terms())) {
    int number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc{} && end == name.data() + name.size()) terms.insert(number);
  }
  return terms;
}

std::string term_text(const std::string& node, bool renounced) {
  return json{{"schema_version", 2},
              {"node", node},
              {"pid", ::getpid()},
              {"time", utc_now()},
              {"renounced", renounced}}
             .dump() +
         "\n";
}

bool is_renounced(const RunDir& run, int term) {
  const auto text = json_from(files::read_text(run.terms() / four_digits(term)));
  return typed<bool>(text, "renounced").value_or(false);
}

/// Appends the events of the whole lines of `text`, and returns how many bytes these are. `line`: lines of
/// the file that are taken.
std::size_t take_entries(const std::string& text, const files::fs::path& file, int& line,
                         std::vector<LogEntry>& entries) {
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    ++line;
    const json object = json_from(std::string_view(text).substr(begin, end - begin));
    if (!object.is_object()) continue;
    try {
      entries.push_back(entry_from_json(object));
    } catch (const Error& error) {
      throw Error(error.exit(), file.string() + " is malformed in line " + std::to_string(line), error.why(),
                  "Mend that line? Until then no leader decides anything, and ranks that live train on");
    }
  }
  return begin;
}

std::vector<LogEntry> entries_in(const files::fs::path& file) {
  std::vector<LogEntry> entries;
  int line = 0;
  take_entries(files::read_text(file, {.limit = files::no_limit}), file, line, entries);
  return entries;
}

}  // namespace

int highest_term(const RunDir& run) {
  const auto terms = terms_of(run);
  return terms.empty() ? 0 : *terms.rbegin();
}

int highest_valid_term(const RunDir& run, int known) {
  const auto terms = terms_of(run);
  for (auto term = terms.rbegin(); term != terms.rend(); ++term)
    if (*term <= known || !is_renounced(run, *term)) return *term;
  return 0;
}

bool take_term(const RunDir& run, int number, const std::string& node) {
  return files::create_exclusively(run.terms() / four_digits(number), term_text(node, false));
}

void renounce_term(const RunDir& run, int number, const std::string& node) {
  files::replace_atomically(run.terms() / four_digits(number), term_text(node, true));
}

Journal::Journal(const RunDir& run, int term)
    : path_(run.events() / file_of(term)),
      fd_(files::open(path_, O_WRONLY | O_CREAT | O_APPEND)),
      term_(term) {
  files::sync_folder(run.events());
  good_ = static_cast<std::uint64_t>(std::max<off_t>(0, ::lseek(fd_.get(), 0, SEEK_END)));
}

LogEntry Journal::completed(LogEntry entry) {
  Envelope& envelope = entry.envelope;
  if (envelope.unix == 0) envelope.unix = unix_seconds();
  envelope.schema_version = 1;
  envelope.term = term_;
  envelope.seq = ++seq_;
  envelope.time = utc_iso8601(envelope.unix);
  return entry;
}

void Journal::append(const std::string& lines) {
  if (torn_) {
    fd_ = files::open(path_, O_WRONLY | O_APPEND);  // the file system may have been away
    if (::ftruncate(fd_.get(), static_cast<off_t>(good_)) != 0)
      throw system_error("cannot cut " + path_.string(), errno);
  }
  torn_ = true;
  files::append_all(fd_.get(), lines, path_);
  files::sync(fd_.get(), path_);
  torn_ = false;
  good_ += lines.size();
}

LogEntry Journal::write(Event event, double unix) {
  LogEntry entry{{}, std::move(event)};
  entry.envelope.unix = unix;
  entry = completed(std::move(entry));
  append(line_of(entry) + "\n");
  return entry;
}

void Journal::write_all(const std::vector<LogEntry>& entries) {
  const int before = seq_;
  std::string lines;
  for (const auto& entry : entries) lines += line_of(completed(entry)) + "\n";
  try {
    append(lines);
  } catch (const Error&) {
    seq_ = before;
    throw;
  }
}

std::vector<LogEntry> read_events(const RunDir& run, int own_term) {
  std::vector<std::vector<LogEntry>> terms;
  const auto names = files::list_or_fail(run.events());
  if (own_term > 0 && !std::binary_search(names.begin(), names.end(), file_of(own_term)))
    throw Error(Exit::transient, "the event log cannot be read",
                "this leader's own file is not in its folder");
  for (const auto& name : names) terms.push_back(entries_in(run.events() / name));
  return valid_events(std::move(terms));
}

bool EventFollower::look() {
  bool news = false;
  for (const auto& name : files::list_or_fail(run_.events())) {
    File& file = files_[name];
    const auto path = run_.events() / name;
    std::error_code error;
    const std::uint64_t size = files::fs::file_size(path, error);
    if (error) throw system_error("cannot read " + path.string(), error.value());
    if (size < file.bytes) file = {};  // a leader has cut off what it could not write whole
    if (size == file.bytes) continue;
    int lines = file.lines;
    std::vector<LogEntry> come;
    const auto taken = take_entries(files::read_part(path, file.bytes, size - file.bytes), path, lines, come);
    file.bytes += taken;
    file.lines = lines;
    std::move(come.begin(), come.end(), std::back_inserter(file.entries));
    news = news || taken > 0;
  }
  return news;
}

std::vector<LogEntry> EventFollower::events() const {
  std::vector<std::vector<LogEntry>> terms;
  for (const auto& [name, file] : files_) terms.push_back(file.entries);
  return valid_events(std::move(terms));
}

RunState replay(const RunDir& run) {
  RunState state;
  for (const auto& entry : read_events(run)) apply(state, entry);
  return state;
}

}  // namespace holdfast::launcher
