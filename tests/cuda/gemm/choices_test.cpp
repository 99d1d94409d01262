#include "src/cuda/gemm/choices.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "src/base/error.hpp"

namespace holdfast::cuda {
namespace {

Choices some() {
  Choices choices{"NVIDIA H200", "9.0", 132, "cuBLASLt 13.1.0", true, {}};
  Algorithm first{66, 24, 36, 1, 0, 1, 2, 5, 3, 1 << 20, {1, 2, 3, 4, 5, 6, 7, ~std::uint64_t{0}}, 812.34};
  Algorithm second = first;
  second.algorithm = 21;
  second.split_k = 4;
  second.reduction = 2;
  second.microseconds = 0.1;
  choices.entries = {{"4096x4096x4096 bf16*bf16->bf16 nt", first},
                     {"11008x4096x8192 bf16*bf16->fp32 tn", second}};
  return choices;
}

std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    return error.what();
  }
  return "";
}

TEST(Choices, TextAndBack) {
  const std::string text = print_choices(some());
  EXPECT_EQ(parse_choices(text), some());
  EXPECT_EQ(print_choices(parse_choices(text)), text);
  const Choices none{"a GPU", "8.0", 108, "x", false, {}};
  EXPECT_EQ(parse_choices(print_choices(none)), none);
}

TEST(Choices, DamagedTextIsRefusedWithThePlace) {
  const std::string good = print_choices(some());
  const auto damaged = [&](const std::string& old, const std::string& now) {
    std::string text = good;
    const std::size_t at = text.find(old);
    EXPECT_NE(at, std::string::npos) << old;
    text.replace(at, old.size(), now);
    return complaint([&] { parse_choices(text); });
  };
  EXPECT_NE(complaint([] { parse_choices("{"); }).find("tuning.json"), std::string::npos);
  EXPECT_NE(complaint([] { parse_choices("[]"); }), "");
  EXPECT_NE(damaged("\"format\": 1", "\"format\": 2").find("format 2"), std::string::npos);
  EXPECT_NE(damaged("\"tile\": 24", "\"tile\": \"24\""), "");
  EXPECT_NE(damaged("\"stages\"", "\"stage\"").find("stages"), std::string::npos);
  EXPECT_NE(damaged("\"multiprocessors\"", "\"mp\"").find("multiprocessors"), std::string::npos);
  EXPECT_NE(damaged("ffffffffffffffff\"", "fffffffffffffff\"").find("128 hex digits"), std::string::npos);
  EXPECT_NE(damaged("ffffffffffffffff\"", "fffffffffffffffg\"").find("128 hex digits"), std::string::npos);
}

TEST(Choices, RefusedElsewhere) {
  EXPECT_EQ(complaint([] { require_same_place(some(), some()); }), "");
  const auto elsewhere = [](const std::function<void(Choices&)>& change) {
    Choices here = some();
    here.entries.clear();
    change(here);
    return complaint([&] { require_same_place(some(), here); });
  };
  EXPECT_EQ(elsewhere([](Choices&) {}), "");
  EXPECT_NE(elsewhere([](Choices& c) { c.device = "NVIDIA H100"; }).find("then: NVIDIA H200"),
            std::string::npos);
  EXPECT_NE(elsewhere([](Choices& c) { c.compute_capability = "9.1"; }).find("another device"),
            std::string::npos);
  EXPECT_NE(elsewhere([](Choices& c) { c.multiprocessors = 114; }).find("114 multiprocessors"),
            std::string::npos);
  EXPECT_NE(elsewhere([](Choices& c) { c.library = "cuBLASLt 12.9.1"; }).find("here: cuBLASLt 12.9.1"),
            std::string::npos);
  EXPECT_NE(elsewhere([](Choices& c) { c.deterministic = false; }).find("then: deterministic; here: free"),
            std::string::npos);
}

TEST(Choices, HashIsOfWhatChangesBits) {
  const std::string hash = hash_choices(some());
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_EQ(hash_choices(print_choices(some())), hash);
  EXPECT_EQ(hash_choices(""), "");
  const auto changed = [](const std::function<void(Choices&)>& change) {
    Choices choices = some();
    change(choices);
    return hash_choices(choices);
  };
  EXPECT_EQ(changed([](Choices& c) { c.entries.begin()->second.microseconds = 7; }), hash);
  EXPECT_NE(changed([](Choices& c) { c.device += "x"; }), hash);
  EXPECT_NE(changed([](Choices& c) { c.library += "x"; }), hash);
  EXPECT_NE(changed([](Choices& c) { c.deterministic = false; }), hash);
  EXPECT_NE(changed([](Choices& c) { c.entries.begin()->second.split_k += 1; }), hash);
  EXPECT_NE(changed([](Choices& c) { c.entries.begin()->second.cluster += 1; }), hash);
  EXPECT_NE(changed([](Choices& c) { c.entries.begin()->second.state[7] ^= 1; }), hash);
  EXPECT_NE(changed([](Choices& c) { c.entries.erase(c.entries.begin()); }), hash);
  EXPECT_NE(changed([](Choices& c) { std::swap(c.entries.begin()->second, c.entries.rbegin()->second); }),
            hash);
  // The order of the text does not count: the same entries, last one first.
  const std::string text = print_choices(some());
  const std::size_t first = text.find("  \"11008x"), second = text.find("  \"4096x"),
                    end = text.rfind("\n }");
  ASSERT_LT(first, second);
  std::string one = text.substr(first, second - first), two = text.substr(second, end - second);
  one.erase(one.rfind(','));
  EXPECT_EQ(hash_choices(text.substr(0, first) + two + ",\n" + one + text.substr(end)), hash);
}

}  // namespace
}  // namespace holdfast::cuda
