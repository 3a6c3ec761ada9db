#include "src/align/read_local.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "src/trace/reader.h"
#include "src/trace/writer.h"

namespace ttrace::read_local_test {
namespace {

namespace fs = std::filesystem;

// Writes one tensor of a mesh {dp 2, tp 2}: every rank its local piece.
class ReadLocalTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::temp_directory_path() /
        ("read_local_" +
         std::string(
             testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    ASSERT_TRUE(CreateTraceFolder(folder_.string(), "{}", false).ok());
  }
  void TearDown() override { fs::remove_all(folder_); }

  static DeviceMesh Mesh() { return {{{"dp", 2}, {"tp", 2}}}; }
  static Coordinate At(int rank) { return {rank / 2, rank % 2}; }

  template <typename T>
  void Write(int rank, DType dtype, const std::string& placements,
             const Shape& local_shape, const Shape& global_shape,
             const std::vector<T>& values, Scale scale = {}) {
    RankMeta meta;
    meta.rank = rank;
    meta.world_size = 4;
    meta.mesh = Mesh();
    meta.coordinate = At(rank);
    auto writer = TraceWriter::Open(folder_.string(), meta);
    ASSERT_TRUE(writer.ok()) << writer.error().message();
    RecordSpec spec;
    spec.fqn = "layer";
    spec.role = Role::kParam;
    spec.dtype = dtype;
    spec.local_shape = local_shape;
    spec.placements = *ParsePlacements(placements);
    spec.global_shape = global_shape;
    spec.scale = scale;
    Occurrence occurrence;
    occurrence.leg = "real";
    std::vector<int64_t> strides(local_shape.size(), 1);
    for (size_t d = strides.size(); d-- > 1;) {
      strides[d - 1] = strides[d] * local_shape[d];
    }
    const auto* data = reinterpret_cast<const std::byte*>(values.data());
    const Status status = (*writer)->Append(spec, occurrence, {data, strides});
    ASSERT_TRUE(status.ok()) << status.error().message();
    ASSERT_TRUE((*writer)->Close(true, "").ok());
  }

  template <typename T>
  Status Read(const Layout& want, DType dtype, std::vector<T>& out,
              Scale scale = {}) {
    auto trace = Trace::Open(folder_.string());
    if (!trace.ok()) return trace.error();
    const Catalog catalog(*trace);
    TensorId id;
    id.fqn = "layer";
    id.role = Role::kParam;
    const TensorPieces* pieces = catalog.Find("real", id);
    if (pieces == nullptr) return Error(ErrorCode::kNotFound, "no tensor");
    out.assign(static_cast<size_t>(want.local_count()), T{});
    return ReadLocal(*pieces, want, dtype, scale,
                     std::as_writable_bytes(std::span(out)));
  }

  static Layout Whole(const Shape& shape) {
    Layout layout;
    for (const int64_t n : shape) layout.dims.push_back({{{0, n}}, n});
    return layout;
  }

  fs::path folder_;
};

TEST_F(ReadLocalTest, ShardsAreMergedAndCutAnewBitForBit) {
  // tp cuts columns 0,1 | 2,3. One value is a NaN with a payload.
  const uint32_t nan = 0x7FC01234;
  for (int rank = 0; rank < 4; ++rank) {
    const uint32_t c = rank % 2 == 0 ? 0 : 2;
    std::vector<uint32_t> bits = {c, c + 1, 4 + c, 5 + c};
    if (c == 2) bits[3] = nan;
    Write(rank, DType::kF32, "tp:Shard(1)", {2, 2}, {2, 4}, bits);
  }
  // Columns 3, 1 of both rows: another cut, in another order.
  Layout want = Whole({2, 4});
  want.dims[1].segments = {{3, 1}, {1, 1}};
  std::vector<uint32_t> out;
  const Status status = Read(want, DType::kF32, out);
  ASSERT_TRUE(status.ok()) << status.error().message();
  EXPECT_EQ(out, (std::vector<uint32_t>{3, 1, nan, 5}));
}

TEST_F(ReadLocalTest, ReplicasAreNotAveraged) {
  for (int rank = 0; rank < 4; ++rank) {
    Write<float>(rank, DType::kF32, "", {2}, {2},
                 {static_cast<float>(rank), 10});
  }
  std::vector<float> out;
  ASSERT_TRUE(Read(Whole({2}), DType::kF32, out).ok());
  EXPECT_EQ(out, (std::vector<float>{0, 10}));
}

TEST_F(ReadLocalTest, TermsAreSummedOncePerReplicaAndScaled) {
  for (int rank = 0; rank < 4; ++rank) {
    const int pair = rank / 2;
    Write<float>(rank, DType::kF32, "dp:Partial(sum)", {2}, {2},
                 {static_cast<float>(1 + pair), 0.5F}, Scale{1, 2});
  }
  std::vector<float> out;
  ASSERT_TRUE(Read(Whole({2}), DType::kF32, out).ok());
  EXPECT_EQ(out, (std::vector<float>{1.5F, 0.5F}));
}

TEST_F(ReadLocalTest, ValuesAreInUnitsOfTheScaleThatIsAskedFor) {
  for (int rank = 0; rank < 4; ++rank) {
    Write<float>(rank, DType::kF32, "", {2}, {2}, {6, 0.3F}, Scale{1, 2});
  }
  std::vector<float> out;
  ASSERT_TRUE(Read(Whole({2}), DType::kF32, out, Scale{1, 4}).ok());
  EXPECT_EQ(out, (std::vector<float>{12, 0.6F}));
  // Equal scales: the very bits.
  ASSERT_TRUE(Read(Whole({2}), DType::kF32, out, Scale{1, 2}).ok());
  EXPECT_EQ(out, (std::vector<float>{6, 0.3F}));
}

TEST_F(ReadLocalTest, AMissingTermIsNoValue) {
  Write<float>(0, DType::kF32, "dp:Partial(sum)", {2}, {2}, {1, 2});
  Write<float>(1, DType::kF32, "dp:Partial(sum)", {2}, {2}, {1, 2});
  std::vector<float> out;
  const Status status = Read(Whole({2}), DType::kF32, out);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kIncomparable);
}

TEST_F(ReadLocalTest, AHoleIsAnError) {
  Write<float>(0, DType::kF32, "tp:Shard(0)", {1}, {2}, {1});
  std::vector<float> out;
  const Status status = Read(Whole({2}), DType::kF32, out);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message().find("1 of the wanted"),
            std::string::npos);
}

TEST_F(ReadLocalTest, AnotherGlobalShapeIsIncomparable) {
  Write<float>(0, DType::kF32, "", {2}, {2}, {1, 2});
  std::vector<float> out;
  const Status status = Read(Whole({3}), DType::kF32, out);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kIncomparable);
}

TEST_F(ReadLocalTest, ABufferOfAnotherSizeIsRefused) {
  Write<float>(0, DType::kF32, "", {2}, {2}, {1, 2});
  auto trace = Trace::Open(folder_.string());
  ASSERT_TRUE(trace.ok());
  const Catalog catalog(*trace);
  const TensorPieces& pieces = catalog.tensors("real").begin()->second;
  std::array<std::byte, 4> out;
  const Status status = ReadLocal(pieces, Whole({2}), DType::kF32, {}, out);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(ReadLocalTest, RoundingToBFloat16IsOnceAndToEven) {
  // 1 + 2^-8 is a tie: down to even. 1 + 3 * 2^-8: up to even. Just above a
  // tie by 2^-40: up, and a detour through float would lose that.
  const double tie = 1 + 0x1p-8;
  Write<double>(0, DType::kF64, "", {4}, {4},
                {tie, 1 + 3 * 0x1p-8, tie + 0x1p-40, -0x1p-134});
  std::vector<uint16_t> out;
  ASSERT_TRUE(Read(Whole({4}), DType::kBF16, out).ok());
  EXPECT_EQ(out, (std::vector<uint16_t>{0x3F80, 0x3F82, 0x3F81, 0x8000}));
}

TEST_F(ReadLocalTest, RoundingToHalfHandlesDenormalsAndOverflow) {
  Write<double>(0, DType::kF64, "", {4}, {4}, {65504, 65520, 0x1p-24, -1.5});
  std::vector<uint16_t> out;
  ASSERT_TRUE(Read(Whole({4}), DType::kF16, out).ok());
  EXPECT_EQ(out, (std::vector<uint16_t>{0x7BFF, 0x7C00, 0x0001, 0xBE00}));
}

TEST_F(ReadLocalTest, IntegersSaturate) {
  Write<double>(0, DType::kF64, "", {3}, {3}, {0x1p70, -0x1p70, 2.5});
  std::vector<int64_t> out;
  ASSERT_TRUE(Read(Whole({3}), DType::kI64, out).ok());
  EXPECT_EQ(out, (std::vector<int64_t>{INT64_MAX, INT64_MIN, 2}));
}

}  // namespace
}  // namespace ttrace::read_local_test
