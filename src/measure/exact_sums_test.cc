#include "src/measure/exact_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/trace/testing/scratch_trace.h"

namespace ttrace::exact_sums_test {
namespace {

constexpr double kEps = 1e-3;
constexpr int64_t kRows = 6;
constexpr int64_t kWidth = 4;

double Input(int64_t row, int64_t k) {
  return std::sin(static_cast<double>(3 * row + k * k));
}
double Arriving(int64_t row, int64_t k) {
  return std::cos(static_cast<double>(row - 2 * k));
}

// The gradients of a layer norm's weight and bias, by their definition.
std::vector<float> WeightGradient() {
  std::vector<double> sum(kWidth);
  for (int64_t row = 0; row < kRows; ++row) {
    double mean = 0;
    double square = 0;
    for (int64_t k = 0; k < kWidth; ++k) {
      mean += Input(row, k) / kWidth;
      square += Input(row, k) * Input(row, k) / kWidth;
    }
    for (int64_t k = 0; k < kWidth; ++k) {
      sum[static_cast<size_t>(k)] += Arriving(row, k) * (Input(row, k) - mean) /
                                     std::sqrt(square - mean * mean + kEps);
    }
  }
  return {sum.begin(), sum.end()};
}
std::vector<float> BiasGradient() {
  std::vector<double> sum(kWidth);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t k = 0; k < kWidth; ++k) {
      sum[static_cast<size_t>(k)] += Arriving(row, k);
    }
  }
  return {sum.begin(), sum.end()};
}

class ExactSumsTest : public testing::Test {
 protected:
  void SetUp() override {
    OrDie(CreateTraceFolder(folder_.path(), "{}", true));
    RankMeta meta;
    meta.world_size = 1;
    meta.mesh.dims = {{"dp", 1}};
    meta.coordinate = {0};
    writer_ = OrDie(TraceWriter::Open(folder_.path(), meta));
    OrDie(writer_->Note("token_sums",
                        R"({"norms":{"norm":0.001,"first":0.001},)"
                        R"("tables":{"table":2,"":-1}})"));
  }

  // A tensor of which `value(row, k)` are the elements, in two micro-batches.
  void Rows(const std::string& fqn, Role role, const std::string& arg,
            Shape global, bool permuted,
            const std::function<double(int64_t, int64_t)>& value) {
    const int64_t rows = global.front() / 2;
    for (int i = 0; i < 2; ++i) {
      RecordSpec spec = Spec(fqn, role, arg, global);
      spec.local_shape.front() = rows;
      spec.batch_dim = 0;
      std::vector<float> values;
      const int64_t inner = global.size() > 2 ? global[2] : 1;
      for (int64_t row = i * rows; row < (i + 1) * rows; ++row) {
        if (global.size() == 2) {
          for (int64_t k = 0; k < global[1]; ++k) {
            values.push_back(static_cast<float>(value(row, k)));
          }
          continue;
        }
        // [rows, width, inner] or [rows, inner, width]
        for (int64_t a = 0; a < global[1]; ++a) {
          for (int64_t b = 0; b < inner; ++b) {
            const int64_t at = permuted ? b : a;
            const int64_t k = permuted ? a : b;
            const int64_t width = permuted ? global[2] : global[1];
            values.push_back(static_cast<float>(value(row * width + at, k)));
          }
        }
      }
      Put(spec, i, values);
    }
  }

  void Gradient(const std::string& fqn, const Shape& shape,
                const std::vector<float>& values) {
    Put(Spec(fqn, Role::kGradLocal, "", shape), -1, values);
  }

  // The relative error of a recorded gradient, or -1 if there is none.
  double ErrorOf(const std::string& fqn) {
    if (side_ == nullptr) {
      OrDie(writer_->Seal(0, "real"));
      OrDie(writer_->Close(true, ""));
      side_ = std::make_unique<Side>(OrDie(Side::Open(folder_.path(), {})));
      sums_ = std::make_unique<ExactSums>(*side_);
    }
    TensorId id;
    id.fqn = fqn;
    id.role = Role::kGradLocal;
    id.pass = Pass::kBackward;
    const auto error = OrDie(sums_->ErrorOf(id, *side_->Find("real", id)));
    return error ? error->rel_err() : -1;
  }

  void Norm(const std::string& fqn, const Shape& shape, bool permuted) {
    Rows(fqn, Role::kInput, "x", shape, permuted, Input);
    Rows(fqn, Role::kGradOutput, "0", shape, permuted, Arriving);
    Gradient(fqn + ".weight", {kWidth}, WeightGradient());
    Gradient(fqn + ".bias", {kWidth}, BiasGradient());
  }

 private:
  static RecordSpec Spec(const std::string& fqn, Role role,
                         const std::string& arg, const Shape& shape) {
    RecordSpec spec;
    spec.fqn = fqn;
    spec.role = role;
    spec.arg = arg;
    spec.local_shape = spec.global_shape = shape;
    return spec;
  }

  void Put(const RecordSpec& spec, int micro_batch,
           const std::vector<float>& values) {
    Occurrence at = RealOccurrence();
    at.micro_batch = micro_batch;
    if (spec.batch_dim >= 0) {
      at.row_begin = micro_batch * spec.local_shape.front();
    }
    if (spec.role != Role::kInput) at.pass = Pass::kBackward;
    RecordSpec typed = spec;
    std::vector<int64_t> integers(values.begin(), values.end());
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    if (spec.arg == "ids") {
      typed.dtype = DType::kI64;
      bytes = reinterpret_cast<const std::byte*>(integers.data());
    }
    OrDie(
        writer_->Append(typed, at, {bytes, RowMajorStrides(spec.local_shape)}));
  }

  ScratchFolder folder_;
  std::unique_ptr<TraceWriter> writer_;
  std::unique_ptr<Side> side_;
  std::unique_ptr<ExactSums> sums_;
};

TEST_F(ExactSumsTest, OfALayerNorm) {
  Norm("norm", {kRows, kWidth}, false);
  EXPECT_LT(ErrorOf("norm.weight"), 1e-6);
  EXPECT_LT(ErrorOf("norm.bias"), 1e-6);
  EXPECT_GE(ErrorOf("norm.bias"), 0);
}

TEST_F(ExactSumsTest, OfALayerNormOverADimensionInTheMiddle) {
  Norm("norm", {2, kWidth, 3}, true);
  EXPECT_LT(ErrorOf("norm.weight"), 1e-6);
  EXPECT_LT(ErrorOf("norm.bias"), 1e-6);
  EXPECT_GE(ErrorOf("norm.bias"), 0);
}

TEST_F(ExactSumsTest, WhatAKernelLostIsTheError) {
  Rows("norm", Role::kInput, "x", {kRows, kWidth}, false, Input);
  Rows("norm", Role::kGradOutput, "0", {kRows, kWidth}, false, Arriving);
  std::vector<float> lost = BiasGradient();
  for (float& value : lost) value *= 0.75f;
  Gradient("norm.bias", {kWidth}, lost);
  EXPECT_NEAR(ErrorOf("norm.bias"), 0.25, 1e-6);
}

TEST_F(ExactSumsTest, OfATableButForItsPadding) {
  const auto row_of = [](int64_t token) { return (token * 7) % 5; };
  Rows("table", Role::kInput, "ids", {4, 8}, false,
       [&](int64_t row, int64_t k) {
         return static_cast<double>(row_of(row * 8 + k));
       });
  Rows("table", Role::kGradOutput, "0", {4, 8, 3}, false,
       [](int64_t place, int64_t k) { return Arriving(place, k); });
  std::vector<float> sums(5 * 3, 0);
  for (int64_t token = 0; token < 32; ++token) {
    if (row_of(token) == 2) continue;
    for (int64_t k = 0; k < 3; ++k) {
      sums[static_cast<size_t>(row_of(token) * 3 + k)] +=
          static_cast<float>(Arriving(token, k));
    }
  }
  Gradient("table.weight", {5, 3}, sums);
  EXPECT_LT(ErrorOf("table.weight"), 1e-6);
  EXPECT_GE(ErrorOf("table.weight"), 0);
}

TEST_F(ExactSumsTest, NothingIsSaidOfWhatIsNotKnown) {
  Norm("other", {kRows, kWidth}, false);
  Norm("first", {kRows, kWidth}, false);
  Rows("first", Role::kInput, "y", {kRows, kWidth}, false, Input);
  Rows("norm", Role::kInput, "x", {kRows, kWidth}, false, Input);
  Gradient("norm.weight", {kWidth}, WeightGradient());
  EXPECT_EQ(ErrorOf("other.bias"), -1);   // no note
  EXPECT_EQ(ErrorOf("first.bias"), -1);   // two inputs
  EXPECT_EQ(ErrorOf("norm.weight"), -1);  // no gradient
}

}  // namespace
}  // namespace ttrace::exact_sums_test
