#include "src/experiment/rounding_of_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "src/experiment/side.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::rounding_of_tensors_test {
namespace {

// A model whose forward is seen from outside of "region" and of "head": what is
// inside of the region is not called by itself, as where it is compiled.
class RoundingOfTensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    OrDie(CreateTraceFolder(folder_.path(), "{}", true));
    writer_ = OrDie(TraceWriter::Open(folder_.path(), RankMeta()));
    OrDie(writer_->Note("modules_beside",
                        R"({"count": 2, "classes": ["Sequential"]})"));
    OrDie(writer_->Note("modules",
                        R"({"classes": {"attention": "MultiheadAttention",)"
                        R"( "image": "Conv2d"}})"));
    Put("", Role::kInput, "x", {4, 6});
    for (const char* module : {"region", "head", "attention"}) {
      Put(module, Role::kOutput, "0", {4, 6});
    }
    for (const char* parameter :
         {"region.up.weight", "region.down.weight", "head.weight",
          "attention.in.weight", "attention.out_proj.weight"}) {
      Put(parameter, Role::kParam, "", {6, 9});
    }
    Put("image", Role::kOutput, "0", {4, 7, 5, 5});
    Put("image.weight", Role::kParam, "", {7, 6, 3, 3});
    Put("region.up.bias", Role::kParam, "", {9});
    OrDie(writer_->Seal(0, "real"));
    OrDie(writer_->Close(true, ""));
    side_ = OrDie(Side::Open(folder_.path(), {}));
  }

  Rounding Of(const std::string& fqn, bool isolated = true,
              Role role = Role::kGradLocal) const {
    TensorId id;
    id.fqn = fqn;
    id.role = role;
    id.pass = Pass::kBackward;
    return RoundingOfTensors(side_, side_).Of(id, isolated, true);
  }

 private:
  void Put(const std::string& fqn, Role role, const std::string& arg,
           const Shape& shape) {
    RecordSpec spec;
    spec.fqn = fqn;
    spec.role = role;
    spec.arg = arg;
    spec.local_shape = spec.global_shape = shape;
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    const std::vector<float> values(static_cast<size_t>(count), 1);
    Occurrence at;
    at.leg = "real";
    OrDie(writer_->Append(spec, at,
                          {reinterpret_cast<const std::byte*>(values.data()),
                           RowMajorStrides(spec.local_shape)}));
  }

  ScratchFolder folder_;
  std::unique_ptr<TraceWriter> writer_;
  Side side_;
};

TEST_F(RoundingOfTensorsTest,
       AParametersProductsAreThoseOfWhoMultipliesWithIt) {
  EXPECT_EQ(Of("head.weight").products, 1);
  EXPECT_EQ(Of("region.up.weight").products, 2);
  EXPECT_EQ(Of("region.up.bias").products, 2);
  EXPECT_EQ(Of("attention.out_proj.weight").products, 4);
  // End to end noise goes into each of them.
  EXPECT_EQ(Of("region.up.weight", false).products, 1);
}

TEST_F(RoundingOfTensorsTest, WhatArrivesInsideOfAModuleIsASumToo) {
  EXPECT_EQ(Of("head.weight").longest_sum, 6);
  EXPECT_EQ(Of("region.up.weight").longest_sum, 9);
}

TEST_F(RoundingOfTensorsTest, AKernelIsSummedOverAllItsPlaces) {
  EXPECT_EQ(Of("image", true, Role::kOutput).longest_sum, 6 * 9);
  EXPECT_EQ(Of("image", true, Role::kGradInput).longest_sum, 7 * 9);
}

TEST_F(RoundingOfTensorsTest, ModelsBesideRoundWhatComesOfTheLoss) {
  EXPECT_EQ(Of("head.weight", false).models_beside, 2);
  EXPECT_EQ(Of("head.weight", true).models_beside, 0);
  Rounding rounding = Of("head.weight", false);
  const double with = SummationGrowth(rounding);
  rounding.models_beside = 0;
  EXPECT_DOUBLE_EQ(with, std::sqrt(3) * SummationGrowth(rounding));
}

}  // namespace
}  // namespace ttrace::rounding_of_tensors_test
