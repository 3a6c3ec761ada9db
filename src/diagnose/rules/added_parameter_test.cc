// A parameter that is added another number of times: where the rule must speak,
// and what lies just beside.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/diagnose/testing/evidence_lab.h"

namespace ttrace::added_parameter_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr double kNoise = 1e-4;
constexpr double kBound = 2e-4;
constexpr int64_t kWidth = 32;
const Shape kOfRows = {6, 4, kWidth};
const TensorId kOutput = Id("mlp.down", Role::kOutput);

std::vector<double> Truth() { return RandomValues(5, 6 * 4 * kWidth); }
std::vector<double> Bias() { return RandomValues(8, kWidth); }

// `values` and `times` x `row` in each row of them.
std::vector<double> WithRows(std::vector<double> values, double times,
                             const std::vector<double>& row) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] += times * row[i % row.size()];
  }
  return values;
}

// An output whose candidate is the truth and `times` x `added`.
Lab OutputLab(double times, const std::vector<double>& added,
              const Sharding& sharding = Copies(2)) {
  Lab lab(kOutput, kBound);
  lab.Reference(kOutput, kOfRows, Truth());
  lab.Candidate(kOutput, kOfRows,
                Noisy(WithRows(Truth(), times, added), kNoise), sharding);
  return lab;
}

// Both sides have a parameter of this name.
void AddParameter(const std::string& name, const Shape& shape,
                  const std::vector<double>& values, Lab* lab,
                  const TensorId* as = nullptr) {
  const TensorId id = as != nullptr ? *as : Id(name, Role::kParam);
  lab->Reference(id, shape, values);
  lab->Candidate(id, shape, values);
}

std::string FirstWithBias(double times, const Sharding& sharding = Copies(2)) {
  Lab lab = OutputLab(times, Bias(), sharding);
  AddParameter("mlp.down.weight", {kWidth, kWidth},
               RandomValues(9, kWidth * kWidth), &lab);
  AddParameter("mlp.down.bias", {kWidth}, Bias(), &lab);
  return lab.First();
}

TEST(AddedParameter, ByEachRankBeforeASum) {
  const std::string two = FirstWithBias(1);
  EXPECT_THAT(two, StartsWith("K: candidate minus reference is 1 x "
                              "mlp.down.bias in every row"));
  EXPECT_THAT(two, HasSubstr("it counts 2 times instead of once, and the "
                             "factor equals tp = 2"));
  const std::string four = FirstWithBias(3, Copies(4));
  EXPECT_THAT(four, HasSubstr("counts 4 times"));
  EXPECT_THAT(four, HasSubstr("tp = 4"));
  EXPECT_THAT(FirstWithBias(1, Parts(2, 2)), HasSubstr("counts 2 times"));
}

TEST(AddedParameter, NotAtAll) {
  EXPECT_THAT(FirstWithBias(-1), HasSubstr("-1 x mlp.down.bias"));
  EXPECT_THAT(FirstWithBias(-1), HasSubstr("it is not added"));
}

TEST(AddedParameter, OfAModuleWithinTheCulprit) {
  Lab lab(Id("mlp", Role::kOutput), kBound);
  lab.Reference(Id("mlp", Role::kOutput), kOfRows, Truth());
  lab.Candidate(Id("mlp", Role::kOutput), kOfRows,
                WithRows(Truth(), 1, Bias()));
  AddParameter("mlp.down.bias", {kWidth}, Bias(), &lab);
  EXPECT_THAT(lab.First(), HasSubstr("1 x mlp.down.bias"));
}

TEST(AddedParameter, OfSeveralDimensions) {
  const std::vector<double> positions = RandomValues(3, 4 * kWidth);
  Lab lab = OutputLab(1, positions);
  AddParameter("mlp.down.positions", {4, kWidth}, positions, &lab);
  EXPECT_THAT(lab.First(), HasSubstr("1 x mlp.down.positions"));
}

TEST(AddedParameter, AsTheLastStepLeftIt) {
  TensorId output = kOutput;
  output.iteration = 2;
  Lab lab(output, kBound);
  lab.Reference(output, kOfRows, Truth());
  lab.Candidate(output, kOfRows, WithRows(Truth(), 1, Bias()));
  AddParameter("mlp.down.bias", {kWidth}, RandomValues(20, kWidth), &lab);
  TensorId updated = Id("mlp.down.bias", Role::kParamUpdated, 0);
  AddParameter("", {kWidth}, RandomValues(21, kWidth), &lab, &updated);
  // That of this iteration's step comes after its forward pass.
  updated.iteration = 2;
  AddParameter("", {kWidth}, RandomValues(23, kWidth), &lab, &updated);
  EXPECT_EQ(lab.Letters(), "");
  updated.iteration = 1;
  AddParameter("", {kWidth}, Bias(), &lab, &updated);
  EXPECT_EQ(lab.Letters(), "K");
}

TEST(AddedParameter, IsNoOtherError) {
  // Not a whole number of times; another row; an error beside it; noise.
  EXPECT_EQ(FirstWithBias(0.5), "");
  EXPECT_EQ(FirstWithBias(1.01), "");
  const auto letters = [](Lab lab) {
    AddParameter("mlp.down.bias", {kWidth}, Bias(), &lab);
    return lab.Letters();
  };
  EXPECT_EQ(letters(OutputLab(1, RandomValues(30, kWidth))), "");
  std::vector<double> beside = Bias();
  beside[3] += 0.1;
  EXPECT_EQ(letters(OutputLab(1, beside)), "");
  EXPECT_EQ(letters(OutputLab(1e-3, RandomValues(30, kWidth))), "");
  // Of all rows at once.
  const std::vector<double> whole = RandomValues(31, 6 * 4 * kWidth);
  Lab of_all = OutputLab(1, whole);
  AddParameter("mlp.down.table", kOfRows, whole, &of_all);
  EXPECT_EQ(of_all.Letters(), "");
  // It is wrong in some rows only.
  std::vector<double> some = Truth();
  for (size_t i = 0; i < some.size() / 2; ++i) some[i] += Bias()[i % kWidth];
  Lab lab(kOutput, kBound);
  lab.Reference(kOutput, kOfRows, Truth());
  lab.Candidate(kOutput, kOfRows, some);
  EXPECT_EQ(letters(std::move(lab)), "");
}

TEST(AddedParameter, IsTheModulesOwn) {
  Lab lab = OutputLab(1, Bias());
  AddParameter("mlp.downward.bias", {kWidth}, Bias(), &lab);
  AddParameter("mlp.up.bias", {kWidth}, Bias(), &lab);
  EXPECT_EQ(lab.Letters(), "");
}

TEST(AddedParameter, OfEqualValuesIsAnyOffset) {
  Lab lab = OutputLab(1, std::vector<double>(kWidth, 1.0));
  AddParameter("mlp.down.weight", {kWidth}, std::vector<double>(kWidth, 1.0),
               &lab);
  EXPECT_EQ(lab.Letters(), "");
}

TEST(AddedParameter, OfFewValuesFitsByChance) {
  const auto letters = [](int64_t width) {
    const std::vector<double> bias =
        RandomValues(8, static_cast<size_t>(width));
    Lab lab(kOutput, kBound);
    const std::vector<double> truth =
        RandomValues(5, static_cast<size_t>(24 * width));
    lab.Reference(kOutput, {24, width}, truth);
    lab.Candidate(kOutput, {24, width},
                  Noisy(WithRows(truth, 1, bias), kNoise));
    AddParameter("mlp.down.bias", {width}, bias, &lab);
    return lab.Letters();
  };
  EXPECT_EQ(letters(4), "");
  EXPECT_EQ(letters(16), "K");
}

TEST(AddedParameter, WithinACoarseBoundOneNumberIsLikeTheNext) {
  const auto letters = [](double bound) {
    Lab lab(kOutput, bound);
    lab.Reference(kOutput, kOfRows, Truth());
    // A long bias hides the noise of the rest, a short one is lost in it.
    std::vector<double> bias = Bias();
    for (double& value : bias) value *= 0.05;
    lab.Candidate(kOutput, kOfRows, WithRows(Truth(), 5, bias));
    AddParameter("mlp.down.bias", {kWidth}, bias, &lab);
    return lab.Letters();
  };
  EXPECT_EQ(letters(1e-3), "K");
  EXPECT_EQ(letters(0.02), "");
}

TEST(AddedParameter, IsSeenInASampleOfTheOutput) {
  Lab lab(kOutput, kBound);
  lab.summarized = 256;
  lab.Reference(kOutput, kOfRows, Truth());
  lab.Candidate(kOutput, kOfRows, WithRows(Truth(), 1, Bias()));
  AddParameter("mlp.down.bias", {kWidth}, Bias(), &lab);
  EXPECT_THAT(lab.First(), HasSubstr("1 x mlp.down.bias"));
  EXPECT_THAT(lab.First(), HasSubstr("seen in the sample of"));
}

}  // namespace
}  // namespace ttrace::added_parameter_test
