#pragma once
// The bytes of a file behind its compression.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace holdfast::corpus {

enum class Compression { none, gzip, zstd };

/// By the end of the name: ".gz", ".zst".
Compression compression_of(const std::filesystem::path& path);

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Up to `most` >= 1 bytes into `to`; 0 only at the end. Error names the file when it cannot be read, is
  /// damaged, or ends too soon.
  virtual std::size_t read(char* to, std::size_t most) = 0;
};

/// gzip: members one after the other (RFC 1952); zstd: frames likewise (RFC 8878), windows up to 128 MiB. An
/// empty file is an empty stream. `begin`: the byte of the file to begin with; 0 unless it is not compressed.
std::unique_ptr<ByteStream> open_stream(const std::filesystem::path& path, Compression compression,
                                        std::uint64_t begin = 0);

}  // namespace holdfast::corpus
