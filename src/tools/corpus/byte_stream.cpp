#include "src/tools/corpus/byte_stream.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::corpus {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t chunk_bytes = 256 << 10;

Error damaged(const fs::path& path, const std::string& why) {
  return {Exit::usage, "cannot read input " + path.string(), why, "Get the file again?"};
}

class PlainStream final : public ByteStream {
 public:
  PlainStream(const fs::path& path, std::uint64_t begin) : path_(path), fd_(files::open(path, O_RDONLY)) {
    if (begin > 0 && ::lseek(fd_.get(), static_cast<off_t>(begin), SEEK_SET) < 0)
      throw system_error("cannot read " + path_.string(), errno);
  }

  std::size_t read(char* to, std::size_t most) override {
    ssize_t got = 0;
    do got = ::read(fd_.get(), to, most);
    while (got < 0 && errno == EINTR);
    if (got < 0) throw system_error("cannot read " + path_.string(), errno);
    return as_size(got);
  }

 private:
  fs::path path_;
  files::Fd fd_;
};

/// What both decompressors need: the file in chunks.
class Compressed {
 public:
  explicit Compressed(const fs::path& path) : path_(path), file_(path, 0), bytes_(chunk_bytes) {}

  /// False at the end of the file.
  bool refill() {
    have_ = file_.read(bytes_.data(), bytes_.size());
    if (have_ > 0) empty_ = false;
    return have_ > 0;
  }
  const fs::path& path() const { return path_; }
  char* data() { return bytes_.data(); }
  std::size_t size() const { return have_; }
  bool was_empty() const { return empty_; }  ///< nothing ever came

 private:
  fs::path path_;
  PlainStream file_;
  std::vector<char> bytes_;
  std::size_t have_ = 0;
  bool empty_ = true;
};

class GzipStream final : public ByteStream {
 public:
  explicit GzipStream(const fs::path& path) : from_(path) {
    constexpr int gzip_format = 15 + 16;
    if (::inflateInit2(&state_, gzip_format) != Z_OK) throw Error(Exit::runtime, "zlib cannot be used");
  }
  ~GzipStream() override { ::inflateEnd(&state_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  std::size_t read(char* to, std::size_t most) override {
    state_.next_out = reinterpret_cast<Bytef*>(to);
    state_.avail_out = static_cast<uInt>(std::min<std::size_t>(most, 1 << 30));
    const uInt asked = state_.avail_out;
    while (state_.avail_out == asked) {
      if (state_.avail_in == 0 && !pending_) {
        if (!from_.refill()) {
          if (between_members_ || from_.was_empty()) return 0;
          throw damaged(from_.path(), "its gzip data is cut off");
        }
        state_.next_in = reinterpret_cast<Bytef*>(from_.data());
        state_.avail_in = static_cast<uInt>(from_.size());
      }
      if (between_members_) {  // zeros may fill up a tape's block behind the last member
        while (state_.avail_in > 0 && *state_.next_in == 0) {
          ++state_.next_in;
          --state_.avail_in;
        }
        if (state_.avail_in == 0) continue;
        ::inflateReset(&state_);
        between_members_ = false;
      }
      const int said = ::inflate(&state_, Z_NO_FLUSH);
      between_members_ = said == Z_STREAM_END;
      pending_ = state_.avail_out == 0 && !between_members_;  // it may hold more than there was room for
      if (between_members_) continue;
      if (said != Z_OK && said != Z_BUF_ERROR)
        throw damaged(from_.path(), std::string("its gzip data is damaged: ") +
                                        (state_.msg ? state_.msg : "zlib error " + std::to_string(said)));
    }
    return asked - state_.avail_out;
  }

 private:
  Compressed from_;
  z_stream state_ = {};
  bool between_members_ = false, pending_ = false;
};

class ZstdStream final : public ByteStream {
 public:
  explicit ZstdStream(const fs::path& path) : from_(path), state_(::ZSTD_createDCtx()) {
    if (!state_) throw Error(Exit::runtime, "zstd cannot be used", "no memory for its state");
  }

  std::size_t read(char* to, std::size_t most) override {
    ZSTD_outBuffer out = {to, most, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size && !pending_) {
        if (!from_.refill()) {
          if (at_border_) return 0;
          throw damaged(from_.path(), "its zstd data is cut off");
        }
        in_ = {from_.data(), from_.size(), 0};
      }
      const std::size_t said = ::ZSTD_decompressStream(state_.get(), &out, &in_);
      if (::ZSTD_isError(said))
        throw damaged(from_.path(), std::string("its zstd data is damaged: ") + ::ZSTD_getErrorName(said));
      at_border_ = said == 0;
      pending_ = out.pos == out.size && !at_border_;  // its buffers may hold more than there was room for
    }
    return out.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* state) const { ::ZSTD_freeDCtx(state); }
  };
  Compressed from_;
  std::unique_ptr<ZSTD_DCtx, Free> state_;
  ZSTD_inBuffer in_ = {nullptr, 0, 0};
  bool at_border_ = true, pending_ = false;
};

}  // namespace

Compression compression_of(const fs::path& path) {
  const fs::path end = path.extension();
  return end == ".gz" ? Compression::gzip : end == ".zst" ? Compression::zstd : Compression::none;
}

std::unique_ptr<ByteStream> open_stream(const fs::path& path, Compression compression, std::uint64_t begin) {
  expects(begin == 0 || compression == Compression::none, "only plain files are read from the middle");
  switch (compression) {
    case Compression::gzip:
      return std::make_unique<GzipStream>(path);
    case Compression::zstd:
      return std::make_unique<ZstdStream>(path);
    case Compression::none:
      break;
  }
  return std::make_unique<PlainStream>(path, begin);
}

}  // namespace holdfast::corpus
