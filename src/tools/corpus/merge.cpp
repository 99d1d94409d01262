#include "src/tools/corpus/merge.hpp"

#include <algorithm>
#include <list>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/tools/corpus/pack.hpp"

namespace holdfast::corpus {
namespace fs = std::filesystem;
namespace {

/// Token files by number, of which the last few that were asked for stay open.
class OpenFiles {
 public:
  explicit OpenFiles(const std::vector<fs::path>& paths) : paths_(paths) {}

  const data::TokenFile& operator[](std::size_t number) {
    const auto found =
        std::find_if(open_.begin(), open_.end(), [&](const auto& one) { return one.number == number; });
    if (found != open_.end()) {
      open_.splice(open_.begin(), open_, found);
    } else {
      open_.push_front({number, data::TokenFile::open(paths_[number], 0)});
      if (open_.size() > most) open_.pop_back();
    }
    return open_.front().file;
  }

 private:
  static constexpr std::size_t most = 64;
  struct One {
    std::size_t number;
    data::TokenFile file;
  };
  const std::vector<fs::path>& paths_;
  std::list<One> open_;
};

class Merger {
 public:
  Merger(const std::vector<fs::path>& parts, const fs::path& to, const MergeShape& shape,
         const std::string& name, const Watch& watch)
      : parts_(parts),
        files_(parts),
        shape_(shape),
        name_(name),
        watch_(watch),
        out_(to, shape.vocabulary, shape.tokenizer, shape.row) {
    std::error_code error;
    for (const fs::path& path : parts) all_bytes_ += fs::file_size(path, error);
  }

  MergedFile run() {
    shape_.row > 0 ? pack() : concatenate();
    merged_.header = out_.finish();
    return merged_;
  }

 private:
  static std::int64_t end_of(const data::TokenFile& file, std::int64_t document) {
    return document + 1 < file.documents() ? file.document(document + 1) : file.size();
  }

  void concatenate() {
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      const data::TokenFile& file = files_[part];
      for (std::int64_t i = 0; i < file.documents(); ++i)
        append(file, file.document(i), end_of(file, i) - file.document(i));
      merged_.documents += file.documents();
    }
  }

  void pack() {
    Packer packer(shape_.row);
    std::vector<Row> rows;
    std::int64_t number = 0;
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      const data::TokenFile& file = files_[part];
      std::vector<std::int64_t> begins = file.document_begins(0, file.documents());
      begins.push_back(file.size());
      first_document_.push_back(number);
      for (std::size_t i = 0; i + 1 < begins.size(); ++i, ++number) {
        const std::int64_t tokens = fitting(file, begins[i], begins[i + 1] - begins[i]);
        if (tokens == 0) continue;
        ++merged_.documents;
        packer.add(number, tokens, rows);
        put(rows);
      }
    }
    packer.finish(rows);
    put(rows);
  }

  /// How many tokens of a document are packed.
  std::int64_t fitting(const data::TokenFile& file, std::int64_t first, std::int64_t tokens) {
    if (tokens <= shape_.row) return tokens;
    ++merged_.longer;
    if (shape_.longer == Long::drop) return 0;
    if (shape_.longer == Long::cut) return tokens;
    if (!file.header().masked) return shape_.row;
    const std::vector<bool> learned = file.learned(first, shape_.row);
    return std::find(learned.begin(), learned.end(), true) == learned.end() ? 0 : shape_.row;
  }

  void put(std::vector<Row>& rows) {
    for (const Row& row : rows) {
      std::int64_t used = 0;
      for (const Placed& placed : row) {
        const auto behind = std::upper_bound(first_document_.begin(), first_document_.end(), placed.document);
        const auto part = as_size(behind - first_document_.begin()) - 1;
        const data::TokenFile& file = files_[part];
        append(file, file.document(placed.document - first_document_[part]) + placed.first, placed.count);
        used += placed.count;
      }
      if (used == shape_.row) continue;
      out_.begin_document();
      out_.append(std::vector<std::int32_t>(shape_.row - used, shape_.pad), false);
      merged_.padding += shape_.row - used;
    }
    rows.clear();
  }

  /// Tokens [first, first + count) of a document, as a document.
  void append(const data::TokenFile& file, std::int64_t first, std::int64_t count) {
    constexpr std::int64_t most = 1 << 16;
    out_.begin_document();
    for (const std::int64_t end = first + count; first < end;) {
      const std::int64_t now = std::min(most, end - first);
      tokens_.resize(now);
      file.copy(first, tokens_);
      if (file.header().masked)
        out_.append(tokens_, file.learned(first, now));
      else
        out_.append(tokens_);
      first += now;
    }
    if (!next_look_.passed()) return;
    next_look_ = Deadline::in(Millis(100));
    const auto done = static_cast<std::uint64_t>(out_.size()) * (shape_.vocabulary <= 65536 ? 2 : 4);
    if (watch_.progress) watch_.progress(name_, std::min(done, all_bytes_), all_bytes_);
    if (watch_.check) watch_.check();
  }

  const std::vector<fs::path>& parts_;
  OpenFiles files_;
  const MergeShape& shape_;
  const std::string& name_;
  const Watch& watch_;
  data::TokenFileWriter out_;
  std::vector<std::int64_t> first_document_;  ///< of each part that was packed so far, over all parts
  std::uint64_t all_bytes_ = 0;
  Deadline next_look_ = Deadline::in(Millis(100));
  std::vector<std::int32_t> tokens_;
  MergedFile merged_;
};

}  // namespace

MergedFile merge(const std::vector<fs::path>& parts, const fs::path& to, const MergeShape& shape,
                 const std::string& name, const Watch& watch) {
  return Merger(parts, to, shape, name, watch).run();
}

}  // namespace holdfast::corpus
