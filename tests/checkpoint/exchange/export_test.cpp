// Checkpoints in other formats, and back. tests/checkpoint/exchange/convert_test.py reads the same files with
// other people's readers.
#include "checkpoint/exchange/export.hpp"
#include "src/base/as_size.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>

#include "checkpoint/exchange/checkpoint_tensors.hpp"
#include "checkpoint/exchange/import.hpp"
#include "checkpoint/exchange/safetensors_source.hpp"
#include "checkpoint/index/safetensors_model.hpp"
#include "checkpoint/shards/h5.hpp"
#include "checkpoint/verify/diff.hpp"
#include "src/base/files.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

WholeFile plain(const Manifest& manifest, DType type) {
  return plan_safetensors(manifest.tensors,
                          types_of_model(manifest, type == DType::fp32 ? Element::f32 : Element::bf16));
}
WholeFile polyglot(const Manifest& manifest, DType type) { return plan_polyglot(manifest.tensors, type); }

void write_one(const fs::path& step_dir, const Manifest& manifest, const WholeFile& file,
               const fs::path& target, const CopyProgress& progress = {},
               const WholeFileOptions& options = {}) {
  CheckpointTensors from(step_dir, manifest);
  const NamedFile one[] = {{file, target}};
  write_whole_files(from, one, progress, options);
}

struct Export : ::testing::Test {
  const Folder folder;
  const fs::path checkpoints = folder.path() / "checkpoints", out = folder.path() / "out";
  Whole whole{odd_tensors(), 5};
  fs::path step_dir;
  Manifest manifest;

  Export() {
    fs::create_directories(out);
    save(checkpoints, whole, 5, {1, 2}, ragged_layout(whole.tensors, 3, 1));
    step_dir = committed_path(checkpoints, 5);
    manifest = read_manifest(step_dir);
  }
  /// Through windows of one page: every border lies somewhere inside a tensor.
  void write(const WholeFile& file, const fs::path& target, std::int64_t window_bytes = 4096) {
    write_one(step_dir, manifest, file, target, {}, {window_bytes});
  }
  std::vector<float> floats_of(const std::string& name) const {
    for (std::size_t t = 0; t < whole.tensors.size(); ++t)
      if (whole.tensors[t].name == name) return whole.as_floats(t);
    throw std::out_of_range(name);
  }
};

std::vector<float> read_all(const safetensors::Source& source, const std::string& name) {
  const safetensors::Tensor& tensor = source.tensor(name);
  std::vector<float> values(tensor.bytes / safetensors::bytes_of_dtype(tensor.dtype));
  const safetensors::Wanted all[] = {{name, 0, values}};
  source.read(all);
  return values;
}

TEST_F(Export, safetensorsHoldTheModelAndNothingElse) {
  const fs::path path = out / "model.safetensors";
  write(plain(manifest, DType::fp32), path);
  const safetensors::Source source(path);
  EXPECT_EQ(source.names().size(), 6u);
  for (const std::string& name : source.names()) {
    EXPECT_EQ(source.tensor(name).dtype, "F32");
    EXPECT_EQ(read_all(source, name), floats_of("model/" + name)) << name;
  }
  EXPECT_THAT(source.tensor("model.norm.weight").shape, ElementsAre(1009));
  EXPECT_THAT(source.tensor("model.embed_tokens.weight").shape, ElementsAre(37, 53));
  EXPECT_THAT(source.tensor("model.nothing").shape, ElementsAre(0, 64));
  EXPECT_EQ(safetensors::read_header(path).metadata.at("format"), "pt");
}

TEST_F(Export, bf16IsRoundedToTheNearest) {
  const fs::path path = out / "model.safetensors";
  write(plain(manifest, DType::bf16), path);
  const safetensors::Source source(path);
  for (const std::string& name : source.names()) {
    std::vector<float> expected = floats_of("model/" + name);
    for (float& x : expected) x = to_float(to_bf16(x));
    EXPECT_EQ(source.tensor(name).dtype, "BF16");
    EXPECT_EQ(read_all(source, name), expected) << name;
  }
}

TEST_F(Export, theSameWeightsGiveTheSameFileHoweverTheyWereCut) {
  const fs::path other_folder = folder.path() / "other";
  save(other_folder, whole, 5, {4, 1}, even_layout(whole.tensors, 2));
  const fs::path other = committed_path(other_folder, 5);
  for (const auto& plan : {plain, polyglot}) {
    write(plan(manifest, DType::fp32), out / "a");
    write_one(other, read_manifest(other), plan(read_manifest(other), DType::fp32), out / "b");
    EXPECT_EQ(read_file(out / "a"), read_file(out / "b"));
    fs::remove(out / "a");
    fs::remove(out / "b");
  }
}

TEST_F(Export, polyglotIsBothAtOnce) {
  for (const DType type : {DType::fp32, DType::bf16}) {
    const fs::path path = out / "both";
    write(polyglot(manifest, type), path);
    const safetensors::Source source(path);
    EXPECT_EQ(source.names().size(), 7u);
    const auto datasets = h5::datasets_of(h5::open_file(path).get());
    EXPECT_EQ(datasets.size(), 5u);  // the empty tensor has none
    const std::int64_t buffer = safetensors::read_header(path).buffer_offset;
    for (const auto& dataset : datasets) {
      const safetensors::Tensor& tensor = source.tensor(dataset.name);
      EXPECT_EQ(dataset.shape, tensor.shape);
      EXPECT_EQ(dataset.element, h5::element_of(type));
      EXPECT_EQ(dataset.offset, buffer + tensor.first) << dataset.name;
      std::vector<float> expected = floats_of("model/" + dataset.name);
      for (float& x : expected) x = type == DType::bf16 ? to_float(to_bf16(x)) : x;
      EXPECT_EQ(read_all(source, dataset.name), expected);
    }
    fs::remove(path);
  }
}

TEST_F(Export, consolidatedHoldsEveryTensorWhole) {
  const fs::path path = out / "whole.h5";
  write(plan_consolidated(manifest), path);
  const std::string bytes = read_file(path);
  std::map<std::string, h5::Dataset> datasets;
  for (auto& dataset : h5::datasets_of(h5::open_file(path).get())) datasets[dataset.name] = dataset;
  EXPECT_EQ(datasets.size(), 15u);
  for (std::size_t t = 0; t < whole.tensors.size(); ++t) {
    const LogicalTensor& tensor = whole.tensors[t];
    if (tensor.elements() == 0) continue;
    const h5::Dataset& dataset = datasets.at(tensor.name);
    EXPECT_EQ(dataset.shape, shape_of(tensor));
    EXPECT_EQ(dataset.element, h5::element_of(tensor.type));
    EXPECT_EQ(std::memcmp(bytes.data() + dataset.offset, whole.values[t].data(), whole.values[t].size()), 0)
        << tensor.name;
  }
}

TEST_F(Export, damageIsNeverExported) {
  flip_bit(step_dir / "shard-00001.h5", 8 * fs::file_size(step_dir / "shard-00001.h5") - 50);
  EXPECT_THROW(write(plan_consolidated(manifest), out / "x"), Damaged);
  EXPECT_THAT(files::list(out), IsEmpty());
}

/// Blocks that are sound and do not hold what the manifest names: only the digest tells.
TEST_F(Export, otherValuesThanTheManifestsAreNotExported) {
  manifest.digests[0] ^= 1;
  EXPECT_THROW(write(plain(manifest, DType::fp32), out / "x"), Damaged);
  EXPECT_THAT(files::list(out), IsEmpty());
}

TEST_F(Export, nothingIsOverwrittenAndNothingLeftBehind) {
  const WholeFile plan = plain(manifest, DType::fp32);
  write_file(out / "mine", "text");
  const auto exit_of = [&](const fs::path& target) {
    try {
      write(plan, target);
    } catch (const Error& e) {
      return e.exit();
    }
    return Exit::done;
  };
  EXPECT_EQ(exit_of(out / "mine"), Exit::usage);
  EXPECT_EQ(exit_of(out), Exit::usage);
  EXPECT_EQ(exit_of(out / ""), Exit::usage);
  EXPECT_EQ(exit_of(out / "nowhere" / "x"), Exit::usage);
  EXPECT_EQ(exit_of("/dev/full"), Exit::usage);
  EXPECT_EQ(exit_of("/proc/x"), Exit::runtime);
  EXPECT_EQ(read_file(out / "mine"), "text");
  EXPECT_THAT(files::list(out), ElementsAre("mine"));
  struct Stop {};
  const auto stop = [](std::int64_t done, std::int64_t) {
    if (done > 8192) throw Stop();
  };
  EXPECT_THROW(write_one(step_dir, manifest, plan, out / "x", stop, {4096}), Stop);
  EXPECT_THAT(files::list(out), ElementsAre("mine"));
}

// ---- import

constexpr const char* hf_names[] = {"model.embed_tokens.weight",
                                    "model.layers.0.q.weight",
                                    "model.layers.0.norm.weight",
                                    "model.scale",
                                    "model.nothing",
                                    "model.norm.weight"};

struct Import : Export {
  const fs::path source = out / "model.safetensors", imported = folder.path() / "imported";
  ImportOrder order;

  Import() {
    write(plain(manifest, DType::fp32), source);
    order.source = source;
    order.checkpoints = imported;
    for (const LogicalTensor& tensor : whole.tensors)
      if (tensor.name.starts_with(model_family))
        order.model.push_back(
            {tensor.name.substr(model_family.size()), tensor.rows, tensor.cols, DType::fp32});
    order.facts = some_facts(1);
    order.shard_bytes = 3000;
  }
  std::string complaint() {
    try {
      import_safetensors(order);
    } catch (const Error& e) {
      EXPECT_EQ(e.exit(), Exit::usage);
      EXPECT_FALSE(fs::exists(imported));
      return e.why();
    }
    return "nothing";
  }
  /// A safetensors file with these tensors of `whole`, the values of `name` as `dtype`.
  void write_source(const fs::path& path, const std::vector<std::string>& names,
                    const std::string& dtype = "F32") {
    std::vector<safetensors::Tensor> tensors;
    std::string buffer;
    for (const std::string& name : names) {
      const std::vector<float> values = floats_of("model/" + name);
      const auto at = std::find_if(order.model.begin(), order.model.end(),
                                   [&](const LogicalTensor& tensor) { return tensor.name == name; });
      const std::size_t before = buffer.size();
      for (const float x : values) {
        const Bf16 half = to_bf16(x);
        if (dtype == "F32")
          buffer.append(reinterpret_cast<const char*>(&x), 4);
        else
          buffer.append(reinterpret_cast<const char*>(&half), 2);
      }
      tensors.push_back({name, dtype, shape_of(*at), 0, static_cast<std::int64_t>(buffer.size() - before)});
    }
    write_file(path, safetensors::header_text(tensors, {}) + buffer);
  }
};

TEST_F(Import, bringsTheWeightsAndZeroMoments) {
  for (const DType moments : {DType::fp32, DType::bf16}) {
    order.moments = moments;
    const Imported result = import_safetensors(order);
    EXPECT_EQ(result.path, committed_path(imported, 0));
    const Manifest there = read_manifest(result.path);
    EXPECT_GT(there.shards.size(), 3u);
    Facts facts = order.facts;
    facts.data_identity = safetensors::imported_identity(safetensors::Source(source), order.model);
    EXPECT_EQ(there.facts, facts);
    EXPECT_THAT(facts.data_identity, ::testing::MatchesRegex("imported [0-9a-f]{16} F32"));
    EXPECT_EQ(there.point, RunPoint{});
    for (std::size_t t = 0; t < whole.tensors.size(); ++t) {
      if (!whole.tensors[t].name.starts_with(model_family)) continue;
      EXPECT_EQ(there.tensors[t], whole.tensors[t]);
      EXPECT_EQ(there.digests[t], manifest.digests[t]) << whole.tensors[t].name;
    }
    Whole zeros(there.tensors, 0);
    for (std::size_t t = 0; t < zeros.values.size(); ++t) {
      std::fill(zeros.values[t].begin(), zeros.values[t].end(), std::byte{0});
      if (there.tensors[t].name.starts_with(model_family)) continue;
      EXPECT_EQ(there.tensors[t].type, moments);
      EXPECT_EQ(there.digests[t], zeros.digests()[t]) << there.tensors[t].name;
    }
    fs::remove_all(imported);
  }
}

TEST_F(Import, thereAndBackIsTheSameFile) {
  for (const auto& plan : {plain, polyglot})
    for (const DType type : {DType::fp32, DType::bf16}) {
      const fs::path first = out / "first", second = out / "second";
      write(plan(manifest, type), first);
      order.source = first;
      const Imported result = import_safetensors(order);
      const Manifest there = read_manifest(result.path);
      write_one(result.path, there, plan(there, type), second);
      EXPECT_EQ(read_file(first), read_file(second));
      for (const fs::path& path : {first, second, imported}) fs::remove_all(path);
    }
}

TEST_F(Import, shardedFilesCountAsOne) {
  fs::create_directory(out / "sharded");
  write_source(out / "sharded" / "a.safetensors", {hf_names[0], hf_names[3]});
  write_source(out / "sharded" / "b.safetensors", {hf_names[5], hf_names[1], hf_names[2], hf_names[4]},
               "BF16");
  const auto index = [&](const std::string& last) {
    std::string text = "{\"metadata\":{\"total_size\":1},\"weight_map\":{";
    for (int i = 0; i < 6; ++i)
      text += std::string(i == 0 ? "\"" : ",\"") + hf_names[i] + "\":\"" +
              (i == 5             ? last
               : i == 0 || i == 3 ? "a.safetensors"
                                  : "b.safetensors") +
              "\"";
    write_file(out / "sharded" / "model.safetensors.index.json", text + "}}");
  };
  index("b.safetensors");
  for (const fs::path& given : {out / "sharded", out / "sharded" / "model.safetensors.index.json"}) {
    order.source = given;
    const Manifest there = read_manifest(import_safetensors(order).path);
    EXPECT_EQ(there.digests[0], manifest.digests[0]);
    EXPECT_NE(there.digests[5], manifest.digests[5]);  // was rounded
    fs::remove_all(imported);
  }
  index("a.safetensors");
  EXPECT_THAT(complaint(), HasSubstr("model.norm.weight is not in a.safetensors"));
  index("../sharded/b.safetensors");
  EXPECT_THAT(complaint(), HasSubstr("is not a file beside it"));
  write_file(out / "sharded" / "model.safetensors.index.json", "[]");
  EXPECT_THAT(complaint(), HasSubstr("does not begin with '{'"));
  fs::remove(out / "sharded" / "model.safetensors.index.json");
  order.source = out / "sharded";
  EXPECT_THAT(complaint(), HasSubstr("neither model.safetensors"));
}

TEST_F(Import, anIndexThatLiesIsRefused) {
  fs::create_directory(out / "sharded");
  write_source(out / "sharded" / "a.safetensors", {hf_names[0], hf_names[1]});
  write_source(out / "sharded" / "b.safetensors", {hf_names[1], hf_names[2]});
  order.source = out / "sharded" / "model.safetensors.index.json";
  const auto says = [&](const std::string& map) {
    write_file(order.source, "{\"weight_map\":{" + map + "}}");
    return complaint();
  };
  const std::string in_a = "\":\"a.safetensors\"", first = std::string("\"") + hf_names[0] + in_a;
  EXPECT_THAT(says(""), HasSubstr("names no tensor"));
  EXPECT_THAT(says(first + "," + first), HasSubstr("twice"));
  EXPECT_THAT(says("\"model.more\"" + in_a.substr(1)), HasSubstr("model.more is in none of its files"));
  EXPECT_THAT(says("\"x\":1"), HasSubstr("is not a text"));
  for (const char* name : {"", ".", "..", "/etc/passwd", "../a.safetensors", "sharded/a.safetensors"})
    EXPECT_THAT(says("\"x\":\"" + std::string(name) + "\""), HasSubstr("is not a file beside it"));
  EXPECT_THAT(says(first + ",\"" + hf_names[2] + "\":\"b.safetensors\""), HasSubstr("in "));  // twice
  EXPECT_THAT(says("\"x\":\"nowhere.safetensors\""), HasSubstr(""));
}

TEST_F(Import, goesOutAsItCameIn) {
  // Types as real models mix them; what export makes of them by itself is what they were.
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"BF16", "BF16"}, {"F32", "F32"}, {"F16", "F16"}, {"F64", "F32"}};
  for (const auto& [type, back] : cases) {
    std::vector<safetensors::Tensor> tensors;
    std::string buffer;
    std::map<std::string, std::string> bits;
    for (const LogicalTensor& tensor : order.model) {
      const std::string as = tensor.rows == 1 ? "F32" : type;  // norms stay wide
      const auto element = *element_called(as);
      const auto count = as_size(tensor.elements());
      std::string data(count * as_size(bytes_of(element)), '\0');
      std::vector<float> values = floats_of("model/" + tensor.name);
      if (element == Element::f64)
        for (std::size_t i = 0; i < count; ++i) {
          const double x = values[i];
          std::memcpy(data.data() + 8 * i, &x, 8);
        }
      else
        from_fp32(element, values, reinterpret_cast<std::byte*>(data.data()));
      if (element == Element::f64)
        bits[tensor.name] = std::string(reinterpret_cast<const char*>(values.data()), 4 * count);
      else
        bits[tensor.name] = data;
      tensors.push_back({tensor.name, as, shape_of(tensor), 0, std::ssize(data)});
      buffer += data;
    }
    write_file(source, safetensors::header_text(tensors, {}) + buffer);
    const Imported result = import_safetensors(order);
    const Manifest there = read_manifest(result.path);
    const auto types = types_of_model(there, {});
    const fs::path folder_out = out / ("as-" + type);
    fs::create_directory(folder_out);
    std::vector<NamedFile> files;
    safetensors::WeightMap map;
    for (ModelFile& file : plan_model_files(there.tensors, types, 3000)) {
      for (const auto& name : file.tensors) map[name] = file.name;
      files.push_back({std::move(file.file), folder_out / file.name});
    }
    EXPECT_GT(files.size(), 1u);
    CheckpointTensors from(result.path, there);
    write_whole_files(from, files, {}, {4096, 3});
    write_file(folder_out / safetensors::index_name, safetensors::index_text(map, 1));
    const safetensors::Source again(folder_out);
    EXPECT_EQ(again.names().size(), order.model.size());
    for (const LogicalTensor& tensor : order.model) {
      EXPECT_EQ(again.tensor(tensor.name).dtype, tensor.rows == 1 ? "F32" : back) << tensor.name;
      const std::string raw = read_file(folder_out / map.at(tensor.name));
      const auto& at = again.tensor(tensor.name);
      const auto begin = safetensors::read_header(folder_out / map.at(tensor.name)).buffer_offset + at.first;
      EXPECT_EQ(raw.substr(begin, as_size(at.bytes)), bits.at(tensor.name)) << type << " " << tensor.name;
    }
    fs::remove_all(imported);
  }
}

/// A line of /proc/self/status, in bytes.
std::int64_t memory(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == key + ":") {
      std::int64_t kibibytes = 0;
      status >> kibibytes;
      return kibibytes << 10;
    }
  return 0;
}

TEST_F(Import, readingTakesLittleMemoryWhateverIsRead) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer takes memory for what is read";
#endif
  constexpr std::int64_t count = 48 << 20;
  std::vector<safetensors::Tensor> tensors = {{"big", "BF16", {count}, 0, 2 * count}};
  write_file(out / "big", safetensors::header_text(tensors, {}));
  fs::resize_file(out / "big", fs::file_size(out / "big") + 2 * count);  // a hole: zeros
  const safetensors::Source big(out / "big");
  std::vector<float> values(count, 1);
  std::ofstream("/proc/self/clear_refs") << 5;  // from here on, a new peak
  const std::int64_t before = memory("VmRSS");
  const safetensors::Wanted all[] = {{"big", 0, values}};
  big.read(all);
  EXPECT_EQ(values.front() + values[count / 2] + values.back(), 0);
  EXPECT_GT(before, 4 * count);
  EXPECT_LT(memory("VmHWM") - before, 48 << 20);
}

TEST_F(Import, everyHalfComesBack) {
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    float x = 0;
    std::uint16_t back = 0;
    to_fp32(Element::f16, reinterpret_cast<const std::byte*>(&bits), {&x, 1});
    from_fp32(Element::f16, {&x, 1}, reinterpret_cast<std::byte*>(&back));
    const bool loud = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0 && (bits & 0x200) == 0;
    EXPECT_EQ(back, loud ? bits | 0x200 : bits);
    // Halfway to the next one goes to the even one, and a little more goes up.
    if ((bits & 0x7fff) >= 0x7bff) continue;
    const auto next = static_cast<std::uint16_t>(bits + 1);
    float y = 0;
    to_fp32(Element::f16, reinterpret_cast<const std::byte*>(&next), {&y, 1});
    const float half = (x + y) / 2, more = std::nextafter(half, y);
    from_fp32(Element::f16, {&half, 1}, reinterpret_cast<std::byte*>(&back));
    EXPECT_EQ(back, bits % 2 == 0 ? bits : next);
    from_fp32(Element::f16, {&more, 1}, reinterpret_cast<std::byte*>(&back));
    EXPECT_EQ(back, next);
  }
  const float large[] = {65519.0f, 65520.0f, 1e30f};
  std::uint16_t out_bits[3];
  from_fp32(Element::f16, large, reinterpret_cast<std::byte*>(out_bits));
  EXPECT_THAT(out_bits, ElementsAre(0x7bff, 0x7c00, 0x7c00));
}

TEST_F(Import, everyHalfIsTheFloatThatItIs) {
  std::string buffer;
  for (int bits = 0; bits < 65536; ++bits)
    buffer += {static_cast<char>(bits & 0xff), static_cast<char>(bits >> 8)};
  std::vector<safetensors::Tensor> tensors = {{"h", "F16", {65536}, 0, 131072}};
  write_file(out / "halves", safetensors::header_text(tensors, {}) + buffer);
  const auto values = read_all(safetensors::Source(out / "halves"), "h");
  for (int bits = 0; bits < 65536; ++bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double magnitude = exponent == 31  ? (mantissa == 0 ? INFINITY : NAN)
                             : exponent == 0 ? std::ldexp(mantissa, -24)
                                             : std::ldexp(1024 + mantissa, exponent - 25);
    const float x = values[bits];
    if (std::isnan(magnitude))
      EXPECT_TRUE(std::isnan(x));
    else
      EXPECT_EQ(x, (bits & 0x8000) != 0 ? -magnitude : magnitude) << bits;
    EXPECT_EQ(std::signbit(x), (bits & 0x8000) != 0);
  }
}

TEST_F(Import, refusesOtherModels) {
  const auto right = order.model;
  order.model.push_back({"model.more.weight", 2, 2});
  EXPECT_THAT(complaint(), HasSubstr("no tensor model.more.weight"));
  order.model = right;
  order.model[0].rows = 36;
  EXPECT_THAT(complaint(), HasSubstr("model.embed_tokens.weight has shape [37, 53], the model has [36, 53]"));
  order.model = right;
  order.model.erase(order.model.begin() + 1);
  EXPECT_THAT(complaint(), HasSubstr("the model has no tensor model.layers.0.q.weight"));
  order.model = right;
  order.source = out / "nowhere";
  EXPECT_THAT(complaint(), HasSubstr(""));
  std::vector<safetensors::Tensor> tensors = {{"model.embed_tokens.weight", "I32", {37, 53}, 0, 4 * 37 * 53}};
  write_file(out / "ints", safetensors::header_text(tensors, {}) + std::string(4 * 37 * 53, 'x'));
  order.source = out / "ints";
  EXPECT_THAT(complaint(), HasSubstr("is of dtype I32"));
}

TEST_F(Import, aTiedHeadMayBeThereIfItIsTheEmbedding) {
  std::string with_head = read_file(source);
  const safetensors::Header header = safetensors::read_header(source);
  std::vector<safetensors::Tensor> tensors = header.tensors;
  const std::string buffer = with_head.substr(header.buffer_offset);
  tensors.push_back({"lm_head.weight", "F32", {37, 53}, 0, 4 * 37 * 53});
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {1}, 0, 4});
  std::string embedding = buffer.substr(0, 4 * 37 * 53);
  const auto write_head = [&] {
    write_file(source, safetensors::header_text(tensors, {}) + buffer + embedding + "freq");
  };
  write_head();
  EXPECT_THAT(complaint(), HasSubstr("the model has no tensor lm_head.weight"));
  order.tied = true;
  EXPECT_THAT(import_safetensors(order).skipped,
              UnorderedElementsAre("lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"));
  fs::remove_all(imported);
  embedding[100] ^= 1;
  write_head();
  EXPECT_THAT(complaint(), HasSubstr("lm_head.weight differs from the embedding"));
}

TEST_F(Import, nothingIsLeftOfOneThatWasStoppedAndAnotherSucceeds) {
  struct Stop {};
  EXPECT_THROW(import_safetensors(order, [](std::int64_t, std::int64_t) { throw Stop(); }), Stop);
  EXPECT_FALSE(fs::exists(imported));
  fs::create_directories(imported / "step-00000000.tmp-0-1");
  write_file(imported / "step-00000000.tmp-0-1" / "shard-00000.h5", "of one that was killed");
  EXPECT_EQ(import_safetensors(order).path, committed_path(imported, 0));
  EXPECT_THAT(files::list(imported), ElementsAre("step-00000000"));
  EXPECT_THROW(import_safetensors(order), Error);
  EXPECT_THAT(files::list(imported), ElementsAre("step-00000000"));
}

// ---- diff

TEST_F(Export, diffFindsWhatChangedAndByHowMuch) {
  Whole other = whole;
  float x = 0;
  std::memcpy(&x, other.values[0].data() + 40, 4);
  x *= 1.5f;
  std::memcpy(other.values[0].data() + 40, &x, 4);
  const float nan = NAN;
  std::memcpy(other.values[5].data() + 4000, &nan, 4);
  save(checkpoints, other, 6, {1, 2}, even_layout(other.tensors, 2));
  const fs::path after = committed_path(checkpoints, 6);
  const Manifest after_manifest = read_manifest(after);
  const Difference found = diff(manifest, after_manifest);
  EXPECT_FALSE(found.same_state());
  EXPECT_EQ(found.same, 16);
  ASSERT_EQ(found.changed.size(), 2u);
  EXPECT_EQ(found.facts.size(), 4u);  // step, tokens, samples, world
  const auto values = [&](int i) {
    return diff_values(step_dir, manifest, after, after_manifest, found.changed[i].name);
  };
  EXPECT_EQ(values(0).different, 1);
  EXPECT_EQ(values(0).elements, 37 * 53);
  EXPECT_FLOAT_EQ(static_cast<float>(values(0).max_absolute), std::abs(x) / 3);
  EXPECT_NEAR(values(0).max_relative, 1.0 / 3, 1e-6);
  EXPECT_EQ(values(1).different, 1);
  EXPECT_TRUE(std::isinf(values(1).max_absolute));
  EXPECT_TRUE(diff(manifest, manifest).same_state());
}

TEST_F(Export, diffTellsTensorsThatCameAndWent) {
  Manifest other = manifest;
  other.tensors[0].name = "model/new";
  other.tensors[1].rows = 17;
  other.tensors[1].cols = 13;
  const Difference found = diff(manifest, other);
  EXPECT_THAT(found.removed, ElementsAre("model/model.embed_tokens.weight"));
  EXPECT_THAT(found.added, ElementsAre("model/new"));
  ASSERT_EQ(found.changed.size(), 1u);
  EXPECT_FALSE(found.changed[0].comparable());
}

}  // namespace
}  // namespace holdfast::checkpoint
