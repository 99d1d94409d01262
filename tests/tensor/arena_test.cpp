#include "src/tensor/arena.hpp"

#include <gtest/gtest.h>

namespace holdfast::tensor {
namespace {

TEST(Arena, PlannedBytesAreUsedBytesOnceEveryPieceIsAskedFor) {
  Arena arena("test");
  const auto a = arena.plan<float>("a", 3);
  const auto b = arena.plan<std::int32_t>("b", 17);
  const auto c = arena.plan<double>("c", 0);
  EXPECT_EQ(arena.planned_bytes(), 64 + 128);
  EXPECT_EQ(arena.used_bytes(), 0);
  arena.commit();
  float* first = arena.at(a);
  EXPECT_EQ(arena.used_bytes(), 64);
  std::int32_t* second = arena.at(b);
  arena.at(c);
  EXPECT_EQ(arena.used_bytes(), arena.planned_bytes());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % Arena::whole_alignment, 0u);
  EXPECT_EQ(reinterpret_cast<std::byte*>(second) - reinterpret_cast<std::byte*>(first), 64);
  EXPECT_EQ(first[2], 0.0f);  // filled with zeros
  EXPECT_EQ(arena.entries()[1].name, "b");
}

TEST(Arena, RefusesWhatComesTooEarlyOrTooLate) {
  Arena arena;
  const auto a = arena.plan<float>("a", 1);
  EXPECT_THROW(arena.at(a), std::logic_error);
  arena.commit();
  EXPECT_THROW(arena.plan<float>("b", 1), std::logic_error);
  EXPECT_THROW(arena.commit(), std::logic_error);
  EXPECT_THROW(arena.at(Arena::Piece<float>{7}), std::logic_error);
}

TEST(Arena, LiesInMemoryOfSomebodyElse) {
  alignas(Arena::whole_alignment) static std::byte memory[Arena::whole_alignment];
  Arena arena, larger;
  const auto a = arena.plan<float>("a", 16);
  const auto b = arena.plan<float>("b", 16);
  arena.commit(memory);
  EXPECT_EQ(reinterpret_cast<std::byte*>(arena.at(a)), memory);
  EXPECT_EQ(reinterpret_cast<std::byte*>(arena.at(b)), memory + 64);
  larger.plan<float>("c", Arena::whole_alignment);
  EXPECT_THROW(larger.commit(memory), std::logic_error);
}

TEST(Arena, MovesToOtherMemoryOfSomebodyElse) {
  alignas(Arena::whole_alignment) static std::byte here[Arena::whole_alignment],
      there[Arena::whole_alignment];
  Arena arena, own;
  const auto a = arena.plan<float>("a", 1), b = arena.plan<float>("b", 1);
  EXPECT_THROW(arena.move_to(here), std::logic_error);
  arena.commit(here);
  *arena.at(b) = 1;
  arena.move_to(there);
  EXPECT_EQ(reinterpret_cast<std::byte*>(arena.at(a)), there);
  EXPECT_EQ(*arena.at(b), 0.f) << "nothing is copied";
  EXPECT_THROW(arena.move_to(std::span(there).first(64)), std::logic_error);
  EXPECT_THROW(arena.move_to(std::span(there).subspan(1)), std::logic_error);
  own.commit();
  EXPECT_THROW(own.move_to(here), std::logic_error);
}

}  // namespace
}  // namespace holdfast::tensor
