#include "src/data/samples.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <numeric>
#include <set>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::data {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Ints = std::vector<std::int32_t>;

class SamplesTest : public testing::Test {
 protected:
  SamplesTest() {
    std::string name = fs::temp_directory_path() / "holdfast-samples-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~SamplesTest() override { fs::remove_all(folder_); }

  /// Documents of consecutive numbers from `first` on; every `unlearned`-th token is not learned.
  TokenFile make(const std::string& name, int first, const std::vector<int>& lengths, std::int64_t row = 0,
                 int unlearned = 0) const {
    TokenFileWriter writer(folder_ / name, 1000, {}, row);
    int token = first;
    for (const int length : lengths) {
      writer.begin_document();
      for (int i = 0; i < length; ++i, ++token)
        writer.append(Ints{token}, unlearned == 0 || token % unlearned != 0);
    }
    writer.finish();
    return TokenFile::open(folder_ / name);
  }
  struct Window {
    Ints inputs, labels, starts;
  };
  static Window window(const TokenFile& file, std::int64_t first, int length, bool boundaries = true) {
    const auto n = as_size(length);
    Window out{Ints(n), Ints(n), Ints(n)};
    read_window(file, first, boundaries, {out.inputs, out.labels, out.starts});
    return out;
  }

  fs::path folder_;
};

TEST_F(SamplesTest, LabelsStopWhereDocumentsDo) {
  const TokenFile file = make("a", 10, {3, 4, 6});
  const Window w = window(file, 0, 6);
  EXPECT_THAT(w.inputs, ElementsAre(10, 11, 12, 13, 14, 15));
  EXPECT_THAT(w.labels, ElementsAre(11, 12, -1, 14, 15, 16));
  EXPECT_THAT(w.starts, ElementsAre(0, 0, 0, 3, 3, 3));
  const Window next = window(file, 6, 6);
  EXPECT_THAT(next.labels, ElementsAre(-1, 18, 19, 20, 21, 22)) << "document 2 begins at its second token";
  EXPECT_THAT(next.starts, ElementsAre(0, 1, 1, 1, 1, 1));
  const Window before = window(file, 1, 6);
  EXPECT_THAT(before.labels, ElementsAre(12, -1, 14, 15, 16, -1)) << "a document begins right behind";
  const Window one_text = window(file, 0, 6, false);
  EXPECT_THAT(one_text.labels, ElementsAre(11, 12, 13, 14, 15, 16));
  EXPECT_THAT(one_text.starts, ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST_F(SamplesTest, NoLabelCrossesAPackedRow) {
  const TokenFile file = make("a", 10, {4, 2, 6}, 6);
  EXPECT_EQ(windows_of(file, 6), 2);
  EXPECT_THAT(window(file, 0, 6).labels, ElementsAre(11, 12, 13, -1, 15, -1));
  EXPECT_THAT(window(file, 6, 6).labels, ElementsAre(17, 18, 19, 20, 21, -1));
  EXPECT_THAT(window(file, 0, 6, false).labels, ElementsAre(11, 12, 13, 14, 15, -1));
  EXPECT_THROW(windows_of(file, 5), Error);
}

TEST_F(SamplesTest, WhatIsNotLearnedIsNoLabel) {
  const TokenFile file = make("a", 10, {13}, 0, 4);
  const Window w = window(file, 0, 6);
  EXPECT_THAT(w.inputs, ElementsAre(10, 11, 12, 13, 14, 15)) << "it is read all the same";
  EXPECT_THAT(w.labels, ElementsAre(11, -1, 13, 14, 15, -1));
}

TEST_F(SamplesTest, RefusesAFileWithoutOneWholeWindow) {
  EXPECT_EQ(windows_of(make("a", 0, {17}), 16), 1);
  EXPECT_EQ(windows_of(make("b", 0, {32}), 16), 1);
  EXPECT_EQ(windows_of(make("c", 0, {33}), 16), 2);
  EXPECT_THROW(windows_of(make("d", 0, {16}), 16), Error);
}

TEST_F(SamplesTest, OneFileIsReadInItsSamplersOrder) {
  std::vector<Source> sources;
  sources.push_back({make("a", 0, {100}), 1});
  const Samples samples(std::move(sources), 7, 5, true);
  const Sampler order(14, 7, 5);
  for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(samples.place(i).first_token, order.first_token(i));
  EXPECT_FALSE(samples.has_boundaries());
}

TEST_F(SamplesTest, AMixtureKeepsItsWeightsAndVisitsEachSourceInEpochs) {
  std::vector<Source> sources;
  sources.push_back({make("a", 0, {50, 51}), 3});     // 10 windows
  sources.push_back({make("b", 500, {401}), 0.999});  // 40 windows
  const Samples samples(std::move(sources), 10, 5, true);
  EXPECT_TRUE(samples.has_boundaries());
  std::map<std::size_t, std::vector<std::int64_t>> seen;
  for (std::int64_t i = 0; i < 2 * Samples::block; ++i) {
    const auto place = samples.place(i);
    seen[place.source].push_back(place.first_token);
  }
  EXPECT_NEAR(static_cast<double>(seen[0].size()) / static_cast<double>(seen[1].size()), 3.003, 0.01);
  // All windows of a source are visited equally often, but for the epoch that is not over.
  for (const auto& [source, windows] : std::map<std::size_t, int>{{0, 10}, {1, 40}}) {
    std::map<std::int64_t, int> visits;
    for (const auto first : seen[source]) ++visits[first];
    EXPECT_EQ(visits.size(), as_size(windows));
    const auto whole = static_cast<int>(seen[source].size()) / windows;
    for (const auto& [first, times] : visits) EXPECT_TRUE(times == whole || times == whole + 1) << first;
  }
  // Sources take turns: none is left for later.
  int run = 0, longest = 0;
  for (std::int64_t i = 0; i < Samples::block; ++i) {
    run = samples.place(i).source == 0 ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  EXPECT_LT(longest, 60);
}

TEST_F(SamplesTest, PlacesAreAFunctionOfSeedAndNumberAlone) {
  const auto mixture = [&](std::uint64_t seed) {
    std::vector<Source> sources;
    sources.push_back({make("a", 0, {301}), 1});
    sources.push_back({make("b", 0, {301}), 2});
    return Samples(std::move(sources), 10, seed, true);
  };
  const Samples a = mixture(1), b = mixture(1), other = mixture(2);
  int same = 0;
  std::set<std::string> identities = {a.identity(), b.identity(), other.identity()};
  for (std::int64_t i = 999; i >= 0; --i) {
    EXPECT_EQ(a.place(i).first_token, b.place(i).first_token);
    same +=
        a.place(i).source == other.place(i).source && a.place(i).first_token == other.place(i).first_token;
  }
  EXPECT_LT(same, 100);
  EXPECT_EQ(identities.size(), 2u);
  // Written down: a change of the order changes every run that resumes.
  EXPECT_EQ(a.place(0).source, 1u);
  EXPECT_EQ(a.place(12345).first_token, mixture(1).place(12345).first_token);
}

TEST(Quotas, AreTheWeightsRoundedAndNeverNothing) {
  EXPECT_THAT(quotas_of({1}), ElementsAre(4096));
  EXPECT_THAT(quotas_of({1, 1}), ElementsAre(2048, 2048));
  EXPECT_THAT(quotas_of({3, 1}), ElementsAre(3072, 1024));
  EXPECT_THAT(quotas_of({1, 1, 1}), ElementsAre(1366, 1365, 1365));
  EXPECT_THAT(quotas_of({1e9, 1}), ElementsAre(4095, 1));
  for (const std::size_t sources : {7u, 100u, 256u}) {
    std::vector<double> weights;
    for (std::size_t i = 0; i < sources; ++i) weights.push_back(1e-6 + static_cast<double>(i * i % 17));
    const auto quotas = quotas_of(weights);
    EXPECT_EQ(std::accumulate(quotas.begin(), quotas.end(), 0), Samples::block);
    EXPECT_GE(*std::min_element(quotas.begin(), quotas.end()), 1);
  }
}

}  // namespace
}  // namespace holdfast::data
