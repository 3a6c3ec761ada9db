#include "src/trace/strided_gather.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace ttrace::strided_gather_test {
namespace {

// By definition: one element at a time, index by index.
std::vector<std::byte> GatherByDefinition(const std::byte* data,
                                          const Shape& shape,
                                          const std::vector<int64_t>& strides,
                                          int itemsize) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<std::byte> out;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    int64_t offset = 0;
    for (size_t d = shape.size(); d-- > 0;) {
      offset += (rest % shape[d]) * strides[d];
      rest /= shape[d];
    }
    for (int b = 0; b < itemsize; ++b) {
      out.push_back(data[offset * itemsize + b]);
    }
  }
  return out;
}

std::vector<std::byte> GatherAll(const std::byte* data, const Shape& shape,
                                 const std::vector<int64_t>& strides,
                                 int itemsize) {
  StridedGather gather(data, shape, strides, itemsize);
  std::vector<std::byte> out;
  for (auto tile = gather.Next(); !tile.empty(); tile = gather.Next()) {
    out.insert(out.end(), tile.begin(), tile.end());
  }
  return out;
}

std::vector<std::byte> Numbered(size_t bytes) {
  std::vector<std::byte> memory(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    memory[i] = static_cast<std::byte>((i * 131) ^ (i >> 8));
  }
  return memory;
}

TEST(StridedGather, MatchesTheDefinitionForAnyStrides) {
  const std::vector<std::byte> memory = Numbered(8 * 1024);
  // Negative strides start from the middle.
  const std::byte* middle = memory.data() + memory.size() / 2;
  const std::vector<int64_t> steps = {-7, -1, 0, 1, 2, 5, 12};
  const std::vector<Shape> shapes = {
      {3, 4, 5}, {1, 4, 1}, {2, 1, 6}, {5, 1, 1}};
  for (const int itemsize : {1, 2, 4, 8}) {
    for (const Shape& shape : shapes) {
      for (const int64_t a : steps) {
        for (const int64_t b : steps) {
          for (const int64_t c : steps) {
            const std::vector<int64_t> strides = {a, b, c};
            EXPECT_EQ(GatherAll(middle, shape, strides, itemsize),
                      GatherByDefinition(middle, shape, strides, itemsize))
                << itemsize << ": " << a << " " << b << " " << c;
          }
        }
      }
    }
  }
}

TEST(StridedGather, AScalarIsOneElement) {
  const double value = 3.5;
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  EXPECT_EQ(GatherAll(bytes, {}, {}, 8),
            std::vector<std::byte>(bytes, bytes + 8));
}

TEST(StridedGather, AnEmptyTensorNeedsNoMemory) {
  EXPECT_TRUE(GatherAll(nullptr, {3, 0, 5}, {7, 1, 1}, 4).empty());
  EXPECT_TRUE(GatherAll(nullptr, {0}, {0}, 4).empty());
}

TEST(StridedGather, ContiguousMemoryIsNotCopied) {
  const std::vector<std::byte> memory = Numbered(4 * 24);
  // A size of 1 with a strange stride does not make it strided.
  const std::vector<int64_t> strides = {12, 999, 4, 1};
  StridedGather gather(memory.data(), {2, 1, 3, 4}, strides, 4);
  const auto tile = gather.Next();
  EXPECT_EQ(tile.data(), memory.data());
  EXPECT_EQ(tile.size(), memory.size());
  EXPECT_TRUE(gather.Next().empty());
}

TEST(StridedGather, ATransposedTensorLargerThanATileComesInTiles) {
  const int64_t rows = 1025;
  const int64_t columns = 771;
  const std::vector<std::byte> memory =
      Numbered(static_cast<size_t>(rows * columns * 4));
  const std::vector<int64_t> strides = {1, rows};
  StridedGather gather(memory.data(), {rows, columns}, strides, 4);
  int tiles = 0;
  std::vector<std::byte> out;
  for (auto tile = gather.Next(); !tile.empty(); tile = gather.Next()) {
    EXPECT_LE(static_cast<int64_t>(tile.size()), StridedGather::kTileBytes);
    out.insert(out.end(), tile.begin(), tile.end());
    ++tiles;
  }
  EXPECT_GT(tiles, 1);
  EXPECT_EQ(out,
            GatherByDefinition(memory.data(), {rows, columns}, strides, 4));
}

TEST(StridedGather, ReadsMemoryThatIsNotAligned) {
  const std::vector<std::byte> memory = Numbered(1024);
  const std::vector<int64_t> strides = {3, 2};
  EXPECT_EQ(GatherAll(memory.data() + 1, {5, 4}, strides, 8),
            GatherByDefinition(memory.data() + 1, {5, 4}, strides, 8));
}

}  // namespace
}  // namespace ttrace::strided_gather_test
