// A model with its adapters in it: the product, the same bits whatever is read at once, and only beside the
// base that they were trained on.
#include "src/weights/merged_files.hpp"

#include <gmock/gmock.h>

#include <map>

#include "checkpoint/exchange/export.hpp"
#include "tests/weights/folders.hpp"

namespace holdfast::weights {
namespace {

using ::holdfast::test::refusal_of;
using ::holdfast::test::Scratch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace testing;

/// All weights, read `most` elements at a time.
std::map<std::string, std::vector<float>> read_all(MergedFiles& files, std::int64_t most) {
  const auto tensors = tensors_of_model(config::base_tensors_of(files.shape()));
  std::map<std::string, std::vector<float>> out;
  for (int t = 0; t < std::ssize(tensors); ++t) {
    const auto& tensor = tensors[t];
    std::vector<float>& values = out[tensor.name.substr(checkpoint::model_family.size())];
    values.resize(tensor.elements());
    for (std::int64_t at = 0; at < tensor.elements(); at += most)
      files.read({tensors, {{t, at, std::min(most, tensor.elements() - at), values.data() + at}}});
  }
  return out;
}

class Merged : public ::testing::Test {
 protected:
  Scratch scratch_;
  config::ModelShape shape_ = small_shape();
  config::AdapterFacts facts_ = small_adapters();
};

TEST_F(Merged, IsTheBasePlusTheProduct) {
  facts_.base = write_model(scratch_, "base", shape_).string();
  const auto peft = write_peft(scratch_, "peft", shape_, facts_);
  MergedFiles files = MergedFiles::open(peft);
  EXPECT_FALSE(files.shape().adapters.any());
  const auto merged = read_all(files, 1 << 20);
  files.check_base();
  for (const config::TensorSpec& spec : config::base_tensors_of(shape_)) {
    const bool adapted = spec.name.find("q_proj") != std::string::npos ||
                         spec.name.find("v_proj") != std::string::npos ||
                         spec.name.find("down_proj") != std::string::npos;
    const std::string stem = spec.name.substr(0, spec.name.size() - std::string(".weight").size());
    for (std::int64_t i = 0; i < spec.elements(); ++i) {
      double sum = 0;
      for (std::int64_t k = 0; adapted && k < facts_.lora.rank; ++k)
        sum += static_cast<double>(value_at(stem + ".lora_B.weight", i / spec.cols * facts_.lora.rank + k)) *
               value_at(stem + ".lora_A.weight", k * spec.cols + i % spec.cols);
      const double wanted = value_at(spec.name, i) + facts_.lora.alpha / facts_.lora.rank * sum;
      ASSERT_NEAR(merged.at(spec.name)[i], wanted, 2e-6) << spec.name << " " << i;
    }
  }
  for (const std::int64_t most : {1, 5, 7, 64}) {
    MergedFiles again = MergedFiles::open(scratch_.path() / "base", peft);
    EXPECT_EQ(read_all(again, most), merged) << most;
    again.check_base();
  }
}

TEST_F(Merged, WithoutAdaptersIsTheBase) {
  MergedFiles files = MergedFiles::open(write_model(scratch_, "base", shape_));
  for (const auto& [name, values] : read_all(files, 100))
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], value_at(name, static_cast<std::int64_t>(i)));
}

TEST_F(Merged, KnowsTheBaseThatAdaptersWereTrainedOn) {
  const auto base = write_model(scratch_, "base", shape_);
  const auto tensors = tensors_of_model(config::base_tensors_of(shape_));
  std::vector<std::uint64_t> digests;
  for (const auto& spec : config::base_tensors_of(shape_)) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < spec.elements(); ++i) values.push_back(value_at(spec.name, i));
    digests.push_back(digest_part(0, values));
  }
  facts_.base_digest = checkpoint::digest_text(checkpoint::state_digest(tensors, digests));
  MergedFiles good = MergedFiles::open(base, write_peft(scratch_, "good", shape_, facts_));
  read_all(good, 64);
  EXPECT_NO_THROW(good.check_base());
  facts_.base_digest.back() = facts_.base_digest.back() == '0' ? '1' : '0';
  MergedFiles other = MergedFiles::open(base, write_peft(scratch_, "other", shape_, facts_));
  read_all(other, 64);
  const auto refusal = refusal_of([&] { other.check_base(); });
  EXPECT_EQ(refusal.exit, Exit::usage);
  EXPECT_THAT(refusal.text, AllOf(HasSubstr("belong to other weights"), HasSubstr(facts_.base_digest)));
}

TEST_F(Merged, SaysWhatIsMissing) {
  const auto says = [](const fs::path& model, const fs::path& adapters = {}, const fs::path& base = {}) {
    const auto refusal = refusal_of([&] { MergedFiles::open(model, adapters, base); });
    EXPECT_EQ(refusal.exit, Exit::usage);
    return refusal.text;
  };
  const auto base = write_model(scratch_, "base", shape_);
  const auto peft = write_peft(scratch_, "peft", shape_, facts_);
  EXPECT_THAT(says(peft), AllOf(HasSubstr("they name none"), HasSubstr("--base")));
  facts_.base = "meta-llama/Llama-2-7b-hf";
  EXPECT_THAT(says(write_peft(scratch_, "hub", shape_, facts_)),
              HasSubstr("they name meta-llama/Llama-2-7b-hf, which is not here"));
  EXPECT_THAT(says(base, {}, base), HasSubstr("there is a model twice"));
  EXPECT_THAT(says(base / "model.safetensors", peft / "nowhere"), HasSubstr("there are no adapters at"));
  EXPECT_THAT(says(scratch_.path() / "nowhere"), HasSubstr("there are no weights at"));
  scratch_.write("alone/model.safetensors", file_of(config::base_tensors_of(shape_)));
  EXPECT_THAT(says(scratch_.path() / "alone"), HasSubstr("nothing says which model"));
  auto deep = shape_;
  deep.layers = 3;
  scratch_.write("short/config.json", config::hf_config_text(deep, "float32"));
  scratch_.write("short/model.safetensors", file_of(config::base_tensors_of(shape_)));
  EXPECT_THAT(says(scratch_.path() / "short"), HasSubstr("it has no tensor model.layers.2."));
}

}  // namespace
}  // namespace holdfast::weights
