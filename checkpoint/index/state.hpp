#pragma once
// What a checkpoint is about: logical tensors, and views of the parts of them that a rank holds or writes.
// An element is known by its global row-major index in its tensor, never by a rank: that is what makes any
// layout load any other.
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/dtype.hpp"

namespace holdfast::checkpoint {

inline constexpr std::string_view model_family = "model/";
inline constexpr const char* hdf5_meta_tensor = "__hdf5_meta__";  ///< of files that HDF5 reads, too

/// A whole tensor, row-major. A vector has rows = 1. Names: "model/<hf name>", "optim/exp_avg/<hf name>",
/// "optim/exp_avg_sq/<hf name>".
struct LogicalTensor {
  std::string name;
  std::int64_t rows = 1, cols = 1;
  DType type = DType::fp32;
  std::int64_t elements() const { return rows * cols; }
  bool operator==(const LogicalTensor&) const = default;
};

/// Shape that others expect of a tensor: norms and biases have one dimension, everything else rows x cols.
std::vector<std::int64_t> shape_of(const LogicalTensor& tensor);

/// Elements [first, first + count) of logical tensor `tensor`. Empty spans are allowed everywhere and take no
/// room.
struct PieceSpan {
  int tensor = 0;
  std::int64_t first = 0, count = 0;
  bool operator==(const PieceSpan&) const = default;
};

/// Bytes of a piece of one of `tensors`.
inline std::int64_t bytes_of(const PieceSpan& span, std::span<const LogicalTensor> tensors) {
  return span.count * holdfast::bytes_of(tensors[span.tensor].type);
}

/// The same with its memory: `data[i]` is element `first + i`. The writer only reads it; the loader fills it.
struct PieceView {
  int tensor = 0;
  std::int64_t first = 0, count = 0;
  void* data = nullptr;  ///< of the tensor's type
  PieceSpan span() const { return {tensor, first, count}; }
};

/// All tensors of the run (the same list, in the same order, on every rank) and this rank's pieces of them.
struct State {
  std::vector<LogicalTensor> tensors;
  std::vector<PieceView> pieces;
};

/// Where the run stands: optimizer steps done, and what they consumed.
struct RunPoint {
  std::int64_t step = 0, tokens = 0, samples = 0;
  std::string detector = {};  ///< what the run remembers of its losses, opaque here; "": nothing
  std::string scaling = {};   ///< what the scaling of 8-bit products remembers, opaque here; "": nothing
  bool operator==(const RunPoint&) const = default;
};

/// What the state belongs to. The loader only brings it; the caller decides whether it fits.
struct Facts {
  std::string model_toml;     ///< the resolved model file
  int world = 1;              ///< training ranks
  std::string strategy;       ///< sharding strategy, for people
  std::string numerics;       ///< identity of the arithmetic (same identity, same bits)
  std::string data_identity;  ///< identity of the token files
  std::uint64_t seed = 0;
  std::string config_hash;
  bool operator==(const Facts&) const = default;
};

/// Facts::numerics of weights that no run of ours computed (import.hpp): any run of their model may begin
/// with them, whatever its arithmetic.
inline constexpr std::string_view imported_numerics = "imported";

/// Who writes: the term under which the attempt was started (RankEnv::term), and the attempt. Both only
/// grow over the life of a run directory, so a larger generation is a later one.
struct Generation {
  int term = 0, attempt = 0;
  auto operator<=>(const Generation&) const = default;
};

/// One partial logical digest per tensor, over the pieces of this rank (src/base/digest.hpp). Summed over
/// ranks that together hold every element once, they are the tensors' digests.
std::vector<std::uint64_t> partial_digests(const State& state);
/// One number for the whole state; `digests` holds one per tensor, keyed by LogicalTensor::name.
std::uint64_t state_digest(std::span<const LogicalTensor> tensors, std::span<const std::uint64_t> digests);
/// 16 lower-case hex digits.
std::string digest_text(std::uint64_t digest);

}  // namespace holdfast::checkpoint
