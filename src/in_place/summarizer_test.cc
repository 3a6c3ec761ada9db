#include "src/in_place/summarizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/compare_kernel.h"
#include "src/compare/summaries/tensor_summary.h"
#include "src/numeric/sketch.h"
#include "src/trace/testing/scratch_trace.h"
#include "src/trace/writing/writer_thread.h"

namespace ttrace::summarizer_test {
namespace {

std::vector<float> Random(size_t count) {
  std::mt19937 rng(5);
  std::vector<float> values(count);
  for (float& value : values) {
    value =
        std::ldexp(static_cast<float>(rng()), -static_cast<int>(rng() % 40));
  }
  return values;
}

Layout WholeOf(int64_t rows, int64_t columns) {
  return {{{{{0, rows}}, rows}, {{{0, columns}}, columns}}};
}

// What a summary was made of before it was made by parts.
TensorSummary InThreePasses(const PlacedTensor& tensor) {
  TensorSummary out;
  OrDie(AddDigest(tensor, &out.digest));
  ErrorSums sums;
  OrDie(ForEachPackedRun(
      tensor, [&](uint64_t logical, const std::byte* elements, size_t count) {
        const CompareOperand own{elements, tensor.dtype, 0, 1};
        CompareRows(own, own, {1, static_cast<int64_t>(count), logical, 0, 0},
                    &sums);
      }));
  out.sum_sq = sums.Stats().sum_sq_ref;
  out.max_abs = sums.Stats().max_abs_ref;
  out.sketch.emplace(0x7474726163650001);
  OrDie(out.sketch->Add(tensor));
  return out;
}

// NaN is no value that is equal to itself.
std::vector<uint64_t> BitsOf(const Sketch& sketch) {
  std::vector<uint64_t> bits;
  for (const double bucket : sketch.buckets()) {
    bits.push_back(std::bit_cast<uint64_t>(bucket));
  }
  return bits;
}

TEST(Summarizer, PartsInAnyOrderGiveTheSameBits) {
  constexpr int64_t kRows = 1703;
  constexpr int64_t kColumns = 1001;  // no multiple of a block
  const std::vector<float> values = Random(kRows * kColumns);
  Layout shard = WholeOf(kRows, kColumns);
  shard.dims[0] = {{{13, kRows}}, 2 * kRows};
  Layout columns = WholeOf(kRows, kColumns);
  columns.dims[1] = {{{13, kColumns}}, 2 * kColumns};
  const std::vector<int64_t> dense = {kColumns, 1};
  const std::vector<int64_t> transposed = {1, kRows};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Layout& layout : {WholeOf(kRows, kColumns), shard, columns}) {
      for (const auto& strides : {dense, transposed}) {
        const PlacedTensor tensor = {std::as_bytes(std::span(values)).data(),
                                     dtype, strides, layout};
        const TensorSummary expected = InThreePasses(tensor);
        size_t parts = 0;
        const auto backwards = [&](size_t n, const auto& part) {
          for (parts = n; n-- > 0;) part(n);
        };
        const TensorSummary one =
            OrDie(Summarize(tensor, kSketchBuckets, backwards));
        EXPECT_EQ(one.digest, expected.digest);
        EXPECT_EQ(one.sum_sq, expected.sum_sq);
        EXPECT_EQ(one.max_abs, expected.max_abs);
        EXPECT_EQ(BitsOf(*one.sketch), BitsOf(*expected.sketch));
        EXPECT_EQ(one.count, kRows * kColumns);
        if (strides == dense && layout != columns) {
          EXPECT_GE(parts, 4u);
        }
        EXPECT_EQ(EncodeSummary(one),
                  EncodeSummary(OrDie(Summarize(tensor, kSketchBuckets))));
      }
    }
  }
}

// Tensors on both sides of what is summarised by the caller, one of them
// transposed, one of integers; each in memory that is overwritten as soon as
// Append has returned.
void Write(TraceWriter& writer) {
  const std::vector<float> values = Random(1 << 20);
  const auto append = [&](const std::string& name, DType dtype, int64_t rows,
                          int64_t columns, std::vector<int64_t> strides) {
    std::vector<float> memory = values;
    OrDie(writer.Append(PlainSpec(name, dtype, {rows, columns}),
                        RealOccurrence(),
                        {std::as_bytes(std::span(memory)).data(), strides}));
    std::fill(memory.begin(), memory.end(), -1.0F);
  };
  append("small", DType::kF32, 10, 100, {100, 1});
  append("large", DType::kF32, 1024, 1024, {1024, 1});
  append("integers", DType::kI32, 1024, 1024, {1024, 1});
  append("transposed", DType::kF32, 1024, 1024, {1, 1024});
  append("staged", DType::kBF16, 1024, 1024, {1024, 1});
  append("large again", DType::kF32, 1024, 1024, {1024, 1});
  OrDie(writer.Seal(0, "real"));
  OrDie(writer.Close(true, ""));
}

TEST(Summarizer, AThreadWritesWhatIsWrittenWithoutOne) {
  for (const size_t buckets : {size_t{0}, kSketchBuckets}) {
    const ScratchFolder folder;
    const auto open = [&](const std::string& name) {
      return OrDie(TraceWriter::Open(folder / name, TensorParallelMeta(0, 1),
                                     MakeSummarizer(buckets)));
    };
    Write(*open("plain"));
    Write(*WriteOnThread(open("thread")));
    for (const char* file : {"index.jsonl", "segment-00000.safetensors"}) {
      const std::string name = std::string("/rank-00000.r0/") + file;
      const std::string plain = FileText(folder / ("plain" + name));
      EXPECT_FALSE(plain.empty());
      EXPECT_TRUE(plain == FileText(folder / ("thread" + name))) << file;
    }
  }
}

}  // namespace
}  // namespace ttrace::summarizer_test
