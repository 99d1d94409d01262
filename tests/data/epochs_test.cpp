#include "src/data/epochs.hpp"

#include <gtest/gtest.h>

namespace holdfast::data {
namespace {

TEST(Epochs, TakeEverySampleAndFillTheLastStep) {
  EXPECT_EQ(steps_of_epochs(1, 16, 8), 2);
  EXPECT_EQ(steps_of_epochs(1, 17, 8), 3) << "none is left out";
  EXPECT_EQ(steps_of_epochs(3, 17, 8), 7) << "51 samples: an epoch need not end with a step";
  EXPECT_EQ(steps_of_epochs(1, 8, 8), 1);
}

TEST(Epochs, MayBeParts) {
  EXPECT_EQ(steps_of_epochs(0.5, 160, 8), 10);
  EXPECT_EQ(steps_of_epochs(0.1, 30, 3), 1) << "3 samples, whatever 0.1 is in binary";
  EXPECT_EQ(steps_of_epochs(0.3, 10, 1), 3);
  EXPECT_EQ(steps_of_epochs(1.5, 10, 4), 4);
}

TEST(Epochs, LessThanAStepIsNone) {
  EXPECT_EQ(steps_of_epochs(1, 7, 8), 0);
  EXPECT_EQ(steps_of_epochs(3, 7, 8), 0) << "a step would have a sample twice";
  EXPECT_EQ(steps_of_epochs(0.1, 70, 8), 0);
}

TEST(Epochs, OfSteps) {
  EXPECT_DOUBLE_EQ(epochs_of_steps(10, 160, 8), 0.5);
  EXPECT_EQ(samples_of_epochs(2.5, 10), 25);
}

}  // namespace
}  // namespace holdfast::data
