#pragma once
// A small model as a Hugging Face folder, a checkpoint of adapters that were trained on it, and what the two
// are together.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoint/exchange/import.hpp"
#include "checkpoint/exchange/safetensors_source.hpp"
#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/files.hpp"
#include "src/config/hf_config.hpp"
#include "src/config/load.hpp"
#include "src/tools/cli/ckpt_change.hpp"
#include "src/weights/model_files.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::tool {

namespace fs = std::filesystem;
namespace safetensors = checkpoint::safetensors;
using checkpoint::Element;
using checkpoint::testing::read_file;
using checkpoint::testing::write_file;

using Values = std::map<std::string, std::vector<float>>;

/// In the order and under the names of `specs`, all as `type`.
inline void write_tensors(const fs::path& path, const std::vector<config::TensorSpec>& specs,
                          const Values& values, Element type) {
  std::vector<safetensors::Tensor> tensors;
  std::string buffer;
  for (const config::TensorSpec& spec : specs) {
    const std::vector<float>& from = values.at(spec.name);
    std::string bytes(from.size() * as_size(checkpoint::bytes_of(type)), '\0');
    checkpoint::from_fp32(type, from, reinterpret_cast<std::byte*>(bytes.data()));
    const auto shape = spec.kind == config::TensorKind::gain
                           ? std::vector<std::int64_t>{spec.cols}
                           : std::vector<std::int64_t>{spec.rows, spec.cols};
    tensors.push_back({spec.name, std::string(name_of(type)), shape, 0, std::ssize(bytes)});
    buffer += bytes;
  }
  write_file(path, safetensors::header_text(tensors, {}) + buffer);
}

inline std::vector<float> read_tensor(const safetensors::Source& source, const std::string& name) {
  const safetensors::Tensor& tensor = source.tensor(name);
  std::vector<float> values(tensor.bytes / safetensors::bytes_of_dtype(tensor.dtype));
  const safetensors::Wanted all[] = {{name, 0, values}};
  source.read(all);
  return values;
}

/// A base in bf16 as a Hugging Face folder "hf", and a checkpoint "adapters/step-00000000" beside it.
struct CkptMerge : ::testing::Test {
  const checkpoint::testing::Folder folder;
  config::ModelShape shape;
  config::AdapterFacts facts;
  Values base, adapters;

  CkptMerge() {
    shape.vocabulary = 48;
    shape.width = 32;
    shape.ffn = 40;
    facts.lora.rank = 3;
    facts.lora.alpha = 4.5;
    facts.lora.dropout = 0.25;
    facts.lora.targets = {"q_proj", "v_proj", "down_proj"};
    base = drawn(config::base_tensors_of(shape), 1);
    adapters = drawn(config::tensors_of(adapted()), 2);
    fs::create_directory(hf());
    write_tensors(hf() / "model.safetensors", config::base_tensors_of(shape), base, Element::bf16);
    write_file(hf() / "config.json", config::hf_config_text(shape, "bfloat16", {"1", "[2, 3]", "null"}));
    facts.base = hf();
    facts.base_digest = digest_of(base);
    import("adapters", adapted(), adapters, config::to_toml(facts));
  }

  fs::path path(const std::string& name) const { return folder.path() / name; }
  fs::path hf() const { return path("hf"); }
  fs::path trained() const { return path("adapters/step-00000000"); }
  config::ModelShape adapted() const {
    config::ModelShape out = shape;
    out.adapters = config::adapters_of(facts.lora);
    return out;
  }
  /// All bf16 values, so that a base in bf16 holds them.
  static Values drawn(const std::vector<config::TensorSpec>& specs, std::uint32_t seed) {
    std::mt19937 generator(seed);
    Values out;
    for (const config::TensorSpec& spec : specs)
      for (std::int64_t i = 0; i < spec.elements(); ++i)
        out[spec.name].push_back(
            to_float(to_bf16(static_cast<float>(generator() % 20011) / 10007.0f - 1.0f)));
    return out;
  }
  std::string digest_of(const Values& values) const {
    const auto tensors = weights::tensors_of_model(config::base_tensors_of(shape));
    std::vector<std::uint64_t> digests;
    for (const auto& spec : config::base_tensors_of(shape))
      digests.push_back(digest_part(0, values.at(spec.name)));
    return checkpoint::digest_text(checkpoint::state_digest(tensors, digests));
  }
  /// A checkpoint of step 0 in path(name), as a run would have written it.
  void import(const std::string& name, const config::ModelShape& model, const Values& values,
              const std::string& more_toml = {}) const {
    write_tensors(path("source.safetensors"), config::tensors_of(model), values, Element::f32);
    checkpoint::ImportOrder order;
    order.source = path("source.safetensors");
    order.checkpoints = path(name);
    for (const config::TensorSpec& spec : config::tensors_of(model))
      order.model.push_back({spec.name, spec.rows, spec.cols});
    order.facts.model_toml = config::to_toml(shape) + more_toml;
    order.facts.numerics = "test";
    checkpoint::import_safetensors(order);
    fs::remove(path("source.safetensors"));
  }

  /// What W + alpha / rank * B A is, in fp64.
  std::vector<double> expected(const config::TensorSpec& spec) const {
    const std::vector<float>& w = base.at(spec.name);
    std::vector<double> out(w.begin(), w.end());
    const std::string stem = spec.name.substr(0, spec.name.size() - std::string(".weight").size());
    if (!adapters.contains(stem + ".lora_A.weight")) return out;
    const auto &a = adapters.at(stem + ".lora_A.weight"), &b = adapters.at(stem + ".lora_B.weight");
    for (std::int64_t row = 0; row < spec.rows; ++row)
      for (std::int64_t col = 0; col < spec.cols; ++col)
        for (std::int64_t k = 0; k < 3; ++k)
          out[row * spec.cols + col] += 1.5 * b[row * 3 + k] * a[k * spec.cols + col];
    return out;
  }
  /// The order of a merge into path("out").
  ExportOrder merge(const fs::path& from, const fs::path& onto = {}) const {
    ExportOrder order;
    order.path = from;
    order.out = path("out");
    order.merge = true;
    order.base = onto;
    return order;
  }
  static std::string run(const ExportOrder& order) {
    std::ostringstream out;
    EXPECT_EQ(ckpt_export(order, out), 0);
    return out.str();
  }
  std::string merged_file(const ExportOrder& order) const {
    run(order);
    const std::string bytes = read_file(path("out/model.safetensors"));
    fs::remove_all(path("out"));
    return bytes;
  }
  /// What an order that is refused says; it leaves nothing behind.
  std::string complaint(const ExportOrder& order, Exit exit = Exit::usage) const {
    const auto before = files::list(folder.path());
    std::string text = "nothing";
    try {
      std::ostringstream out;
      ckpt_export(order, out);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), exit);
      text = error.what();
    }
    EXPECT_EQ(files::list(folder.path()), before);
    return text;
  }
};

}  // namespace holdfast::tool
