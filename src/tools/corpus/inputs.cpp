// From --input to files and parts. Listing goes through what was named: a file stands for itself, a folder
// for what is below it, in the order of the bytes of the paths, so that every machine sees the same list.
// Left out are hidden files, what other programs leave beside their parts, our own outputs, and, where the
// data are lines or tokens, files that describe a data set. The format of a file follows from its name,
// unless one was asked for; its first bytes say whether it is a pointer of Git LFS, and whether JSON is one
// array.
//
// parts_of() cuts the files into parts of about a 256th of the input each, which can be worked on at the same
// time: plain files of lines are cut at multiples of that size, all others are whole, and small ones share a
// part. Parts depend on names and sizes alone, so that a preparation that was ended goes on with the same
// ones.
#include "src/tools/corpus/inputs.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "src/base/error.hpp"
#include "src/base/lfs_pointer.hpp"
#include "src/tools/corpus/jsonl.hpp"

namespace holdfast::corpus {
namespace fs = std::filesystem;
namespace {

Error bad_input(const fs::path& path, std::string why, std::string hint = {}) {
  return {Exit::usage, "cannot use input " + path.string(), std::move(why), std::move(hint)};
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

/// Hidden, what Spark and Hadoop leave beside their parts, or our own description of a token file.
bool left_out(const std::string& name) {
  if (name.starts_with('.') || name.ends_with(".crc") || name.ends_with(".card.json")) return true;
  for (const char* mark : {"_SUCCESS", "_temporary", "_committed_", "_started_"})
    if (name.starts_with(mark)) return true;
  return false;
}

/// What describes a data set or lays down its rules, and is none of its data.
bool describes(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const char* known : {"README", "LICENSE", "LICENCE", "COPYING", "NOTICE", "CITATION", "CHANGELOG",
                            "dataset_infos.json", "dataset_info.json"}) {
    const std::string_view rest = std::string_view(name).substr(std::min(name.size(), std::strlen(known)));
    if (name.starts_with(known) && (rest.empty() || rest.front() == '.')) return true;
  }
  return false;
}

/// The first bytes of a file; of one that cannot be decompressed none.
std::string first_bytes_of(const fs::path& path, Compression compression) {
  std::string begin(256, '\0');
  try {
    begin.resize(open_stream(path, compression)->read(begin.data(), begin.size()));
  } catch (const Error& error) {
    if (compression == Compression::none || error.exit() != Exit::usage) throw;
    begin.clear();
  }
  return begin;
}

Format format_by_name(const fs::path& path, Compression compression) {
  const std::string name = (compression == Compression::none ? path : path.stem()).extension().string();
  if (name == ".jsonl" || name == ".json" || name == ".ndjson") return Format::jsonl;
  constexpr std::array foreign = {".parquet", ".arrow", ".feather", ".orc", ".avro", ".xz",  ".bz2",
                                  ".lz4",     ".zip",   ".7z",      ".tar", ".tgz",  ".pdf", ".sqlite"};
  for (const char* end : foreign)
    if (name == end || path.extension() == end)
      throw bad_input(path, std::string("files that end in ") + end + " cannot be read",
                      "Write it as JSON Lines (.jsonl, .jsonl.gz, .jsonl.zst)?");
  return Format::text;
}

class Listing {
 public:
  explicit Listing(const Settings& settings)
      : settings_(settings), outputs_(outputs_of(settings)), work_(work_path(settings.output)) {
    if (settings.val_fraction == 0) outputs_.push_back(validation_path(settings.output));
  }

  Inputs all() {
    for (const fs::path& input : settings_.input) {
      std::error_code error;
      const fs::file_status status = fs::status(input, error);
      if (!fs::exists(status))
        throw bad_input(input, "no such file or folder", "Name files and folders with text?");
      if (fs::is_directory(status)) {
        for (const fs::path& path : data_below(input)) {
          const bool other_half = settings_.format == Format::megatron && path.extension() != ".idx";
          if (!is_output(path) && !other_half) add(path);
        }
      } else if (!fs::is_regular_file(status)) {
        throw bad_input(input, "neither a regular file nor a folder", "Name files and folders with text?");
      } else if (is_output(input)) {
        throw bad_input(input, "it is also an output", "Choose another --output?");
      } else {
        add(input);
      }
    }
    if (total_bytes(found_.files) == 0)
      throw Error(Exit::usage, "there is no text to prepare", "every input is empty");
    return std::move(found_);
  }

 private:
  bool is_output(const fs::path& path) const {
    return std::any_of(outputs_.begin(), outputs_.end(),
                       [&](const fs::path& other) { return same_file(path, other); });
  }

  std::vector<fs::path> files_below(const fs::path& folder) const {
    std::vector<fs::path> found;
    std::error_code error;
    fs::recursive_directory_iterator it(folder, error), end;
    for (; !error && it != end; it.increment(error)) {
      const bool out = left_out(it->path().filename().string());
      const bool ours = it->is_directory() && same_file(it->path(), work_);
      if ((out || ours) && it->is_directory()) it.disable_recursion_pending();
      if (!out && it->is_regular_file()) found.push_back(it->path());
    }
    if (error) throw bad_input(folder, error.message());
    std::sort(found.begin(), found.end(),
              [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    return found;
  }

  /// Without what only describes the data, if they are lines.
  std::vector<fs::path> data_below(const fs::path& folder) {
    std::vector<fs::path> found = files_below(folder);
    const auto has_lines = [&](const fs::path& path) {
      return !describes(path) && format_by_name(path, compression_of(path)) == Format::jsonl;
    };
    const bool by_name = settings_.format == Format::automatic;
    if (by_name ? !std::any_of(found.begin(), found.end(), has_lines) : settings_.format == Format::text)
      return found;
    const auto data = std::stable_partition(found.begin(), found.end(),
                                            [](const fs::path& path) { return !describes(path); });
    found_.left_out.insert(found_.left_out.end(), data, found.end());
    found.erase(data, found.end());
    return found;
  }

  void add(fs::path path) {
    Input input;
    if (settings_.format == Format::megatron && path.extension() == ".bin") path.replace_extension(".idx");
    input.path = path;
    const bool tokens = is_tokens(settings_.format);
    input.compression = tokens ? Compression::none : compression_of(path);
    input.format =
        settings_.format == Format::automatic ? format_by_name(path, input.compression) : settings_.format;
    const fs::path data =
        settings_.format == Format::megatron ? fs::path(path).replace_extension(".bin") : path;
    for (const fs::path& needed : {path, data}) {
      struct stat status = {};
      if (::access(needed.c_str(), R_OK) != 0 || ::stat(needed.c_str(), &status) != 0)
        throw bad_input(needed, std::strerror(errno));
      input.bytes = static_cast<std::uint64_t>(status.st_size);
      if (input.bytes < 1024) refuse_lfs_pointer(needed, first_bytes_of(needed, Compression::none));
      input.changed_ns = std::max<std::int64_t>(
          input.changed_ns, status.st_mtim.tv_sec * 1'000'000'000LL + status.st_mtim.tv_nsec);
    }
    input.array = is_lines(input.format) && Elements::are_in(first_bytes_of(path, input.compression));
    found_.files.push_back(std::move(input));
  }

  const Settings& settings_;
  std::vector<fs::path> outputs_;
  fs::path work_;
  Inputs found_;
};

}  // namespace

Inputs inputs_of(const Settings& settings) { return Listing(settings).all(); }

std::uint64_t total_bytes(const std::vector<Input>& inputs) {
  return std::accumulate(inputs.begin(), inputs.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Input& input) { return sum + input.bytes; });
}

std::uint64_t total_text_bytes(const std::vector<Input>& inputs) {
  return std::accumulate(inputs.begin(), inputs.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Input& input) {
                           return sum + input.bytes * (input.compression == Compression::none ? 1 : 4);
                         });
}

std::vector<Part> parts_of(const std::vector<Input>& inputs) {
  // Small corpora are cut finer, so that all cores have something to do.
  const std::uint64_t most =
      std::clamp<std::uint64_t>(total_bytes(inputs) / 256, std::uint64_t{1} << 20, std::uint64_t{64} << 20);
  constexpr std::size_t max_files = 4096;
  std::vector<Part> parts;
  Part part;
  std::uint64_t bytes = 0;
  const auto close = [&] {
    if (!part.empty()) parts.push_back(std::move(part));
    part.clear();
    bytes = 0;
  };
  for (std::uint32_t number = 0; number < inputs.size(); ++number) {
    const Input& input = inputs[number];
    if (is_lines(input.format) && !input.array && input.compression == Compression::none &&
        input.bytes > most) {
      close();
      for (std::uint64_t at = 0; at < input.bytes; at += most)
        parts.push_back({{number, at, std::min(at + most, input.bytes)}});
      continue;
    }
    if (bytes + input.bytes > most || part.size() == max_files) close();
    part.push_back({number, 0, input.bytes});
    bytes += input.bytes;
  }
  close();
  return parts;
}

Border tail_border(const std::vector<Input>& inputs, double val_fraction) {
  auto left = static_cast<std::uint64_t>(static_cast<double>(total_bytes(inputs)) * (1 - val_fraction));
  for (std::uint32_t number = 0; number < inputs.size(); ++number) {
    if (left < inputs[number].bytes) return {number, left};
    left -= inputs[number].bytes;
  }
  return {static_cast<std::uint32_t>(inputs.size()), 0};
}

}  // namespace holdfast::corpus
