#pragma once
// A model as it computes: weights, with what adapters add already in them.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/weights/adapter_files.hpp"
#include "src/weights/model_files.hpp"

namespace holdfast::weights {

/// w[i] += scale * sum over k of b[row, k] * a[k, col], for elements [first, first + w.size()) of a matrix
/// with `cols` columns; a: rank x cols, b: rows x rank. The sum is fp32, k ascending: the same whatever the
/// cut.
void add_adapter(std::span<float> w, std::int64_t first, std::int64_t cols, int rank, float scale,
                 const float* a, const float* b);

class MergedFiles {
 public:
  /// `model`: as ModelFiles. `adapters`: as AdapterFiles, or "": none. When `model` is a checkpoint of
  /// adapters itself, they are added to the weights that its run began with, unless `base` names others.
  /// Throws Error (usage): no weights, other adapters, a path that is not there any more.
  static MergedFiles open(const fs::path& model, const fs::path& adapters = {}, const fs::path& base = {});

  MergedFiles(ModelFiles base, std::optional<AdapterFiles> adapters);

  /// Without adapters.
  const config::ModelShape& shape() const { return shape_; }
  const ModelFiles& base() const { return base_; }
  const AdapterFiles* adapters() const { return adapters_ ? &*adapters_ : nullptr; }

  /// Fills the pieces of `weights`, tensors "model/NAME" of base_tensors_of(shape()) as fp32, adapters added;
  /// by any number of threads at once. Throws Error.
  void read(const checkpoint::State& weights);
  /// The same without adapters: for who computes with them beside the weights, as training does.
  void read_base(const checkpoint::State& weights);
  /// After every element was read exactly once: that the weights are those that their checkpoint names, and
  /// those that the adapters were trained on, where these know. Throws Error: runtime, usage.
  void check_base() const;

 private:
  struct Pair {
    std::int64_t cols = 0;
    std::vector<float> a, b;
  };
  void load_adapters();
  /// Also counts it in.
  std::span<float> read_base(const std::string& name, const checkpoint::PieceView& piece);

  ModelFiles base_;
  std::optional<AdapterFiles> adapters_;
  config::ModelShape shape_;
  int rank_ = 0;
  float scale_ = 0;
  std::map<std::string, Pair> pairs_;             ///< by the name of the matrix, "model/NAME"
  std::map<std::string, std::uint64_t> digests_;  ///< of the base, of what was read
  std::unique_ptr<std::mutex> lock_ = std::make_unique<std::mutex>();  ///< of digests_
};

}  // namespace holdfast::weights
