// What ResolveBatchDim makes of what the model itself is given: items of lists,
// and what counts within the batch of its rank.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/experiment/batch_readings.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::fed_inputs_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// One tensor that a rank recorded: a number a row.
struct Given {
  Role role = Role::kInput;
  std::string fqn;
  std::string arg;
  std::vector<int64_t> values;
};

// A note of what the rows of an argument hold.
struct FedNote {
  bool of_data = false;
  std::string arg;
  int dim = 0;
  std::vector<int64_t> values;
  bool is_relative = false;
};

struct RankGiven {
  std::vector<FedNote> notes;
  std::vector<Given> tensors;
};

class GivenRun {
 public:
  explicit GivenRun(const std::vector<RankGiven>& given) {
    OrDie(CreateTraceFolder(folder_.path(), "{}", true));
    const int ranks = static_cast<int>(given.size());
    for (int rank = 0; rank < ranks; ++rank) {
      RankMeta meta;
      meta.rank = rank;
      meta.world_size = ranks;
      meta.mesh.dims = {{"dp", ranks}};
      meta.coordinate = {rank};
      const auto writer = OrDie(TraceWriter::Open(folder_.path(), meta));
      for (const FedNote& note : given[static_cast<size_t>(rank)].notes) {
        Write(*writer, rank, note);
      }
      for (const Given& tensor : given[static_cast<size_t>(rank)].tensors) {
        Write(*writer, rank, tensor);
      }
      OrDie(writer->Seal(0, "real"));
      OrDie(writer->Close(true, ""));
    }
    side_ = std::make_unique<Side>(OrDie(Side::Open(folder_.path(), {})));
  }
  Side* side() { return side_.get(); }

 private:
  static void Write(TraceWriter& writer, int rank, const FedNote& note) {
    const std::string where =
        fmt::format(R"("fed":"{}","iteration":0,"micro_batch":{},"call":0)",
                    note.of_data ? "data" : "", rank);
    const size_t rows = note.values.size();
    OrDie(writer.Note("fed_call",
                      fmt::format(R"({{{},"rows":{}}})", where, rows)));
    const RowDigests digests =
        DigestRows(std::as_bytes(std::span(note.values)), rows, 8);
    OrDie(writer.Note(
        "fed_rows",
        fmt::format(R"({{{},"arg":"{}","dim":{},"rows":{},"relative":{},)"
                    R"("whole":"{}"}})",
                    where, note.arg, note.dim, rows, note.is_relative,
                    DigestText(digests.whole))));
  }

  static void Write(TraceWriter& writer, int rank, const Given& tensor) {
    RecordSpec spec;
    spec.fqn = tensor.fqn;
    spec.role = tensor.role;
    spec.arg = tensor.arg;
    spec.dtype = DType::kI64;
    spec.local_shape = {static_cast<int64_t>(tensor.values.size())};
    spec.global_shape = spec.local_shape;
    Occurrence at;
    at.leg = "real";
    at.micro_batch = rank;
    OrDie(
        writer.Append(spec, at,
                      {reinterpret_cast<const std::byte*>(tensor.values.data()),
                       RowMajorStrides(spec.local_shape)}));
  }

  ScratchFolder folder_;
  std::unique_ptr<Side> side_;
};

BatchReadings Settle(const std::vector<RankGiven>& reference,
                     const std::vector<RankGiven>& candidate) {
  GivenRun theirs(reference);
  GivenRun own(candidate);
  const RowAlignment rows = OrDie(FindRows(*theirs.side(), *own.side()));
  return ResolveBatchDim(theirs.side(), own.side(), rows);
}

TensorId Input(const std::string& fqn, const std::string& arg) {
  TensorId id;
  id.role = Role::kInput;
  id.fqn = fqn;
  id.arg = arg;
  return id;
}

// A model that is given a list of images, and their classes as a tensor.
RankGiven Images(const std::string& list, const std::vector<int64_t>& images) {
  RankGiven out;
  out.notes = {{false, list, kListDim, images}, {false, "labels", 0, images}};
  for (size_t i = 0; i < images.size(); ++i) {
    const std::string item = fmt::format("{}", i);
    out.tensors.push_back({Role::kInput,
                           "",
                           list.empty() ? item : list + "." + item,
                           {images[i]}});
    // A module within is given a list, too: of something else.
    out.tensors.push_back(
        {Role::kInput, "layer", list + "." + item, {images[i]}});
  }
  out.tensors.push_back({Role::kInput, "", "labels", images});
  return out;
}

TEST(ResolveBatchDim, ItemsOfAListThatAreRowsAreListed) {
  const BatchReadings read =
      Settle({Images("images", {1, 2, 3, 4})},
             {Images("images", {1, 3}), Images("images", {2, 4})});
  // Those of the candidate, and those that only the reference has.
  EXPECT_THAT(read.listed,
              ElementsAre(Input("", "images.0"), Input("", "images.1"),
                          Input("", "images.2"), Input("", "images.3")));
}

TEST(ResolveBatchDim, ItemsOfAListWithoutANameAreTheNumberedOnes) {
  const BatchReadings read = Settle({Images("", {1, 2, 3, 4})},
                                    {Images("", {1, 3}), Images("", {2, 4})});
  EXPECT_THAT(read.listed, ElementsAre(Input("", "0"), Input("", "1"),
                                       Input("", "2"), Input("", "3")));
}

TEST(ResolveBatchDim, AListWhoseItemsAreNoRowsIsNotListed) {
  // Each rank is given the same two: levels of a pyramid.
  std::vector<RankGiven> reference = {Images("images", {1, 2, 3, 4})};
  std::vector<RankGiven> candidate = {Images("images", {1, 3}),
                                      Images("images", {2, 4})};
  reference[0].notes[0].values = {7, 8};
  for (RankGiven& rank : candidate) rank.notes[0].values = {7, 8};
  EXPECT_THAT(Settle(reference, candidate).listed, IsEmpty());
}

TEST(ResolveBatchDim, ATensorWithoutANameIsNoList) {
  const auto given = [](const std::vector<int64_t>& rows) {
    RankGiven out;
    out.notes = {{false, "", 0, rows}};
    out.tensors = {{Role::kInput, "", "0", rows}};
    return out;
  };
  EXPECT_THAT(
      Settle({given({1, 2, 3, 4})}, {given({1, 3}), given({2, 4})}).listed,
      IsEmpty());
}

TEST(ResolveBatchDim, ItemsOfAListOfTheDataAreListed) {
  const auto item = [](const std::vector<int64_t>& images) {
    RankGiven out;
    out.notes = {{true, "images", kListDim, images}, {false, "x", 0, images}};
    for (size_t i = 0; i < images.size(); ++i) {
      out.tensors.push_back(
          {Role::kData, "data", fmt::format("images.{}", i), {images[i]}});
    }
    return out;
  };
  const BatchReadings read =
      Settle({item({1, 2, 3, 4})}, {item({1, 3}), item({2, 4})});
  ASSERT_EQ(read.listed.size(), 4U);
  EXPECT_EQ(read.listed.begin()->role, Role::kData);
}

TEST(ResolveBatchDim, WhatEachRankIsFedWholeIsTheSameForAllRows) {
  const auto given = [](const std::vector<int64_t>& item,
                        const std::vector<int64_t>& used) {
    RankGiven out;
    out.notes = {{true, "x", 0, item}, {false, "x", 0, used}};
    out.tensors = {{Role::kData, "data", "x", item}};
    return out;
  };
  const std::vector<int64_t> all = {1, 2, 3, 4};
  GivenRun reference({given(all, all)});
  GivenRun candidate({given(all, {1, 3}), given(all, {2, 4})});
  const RowAlignment rows =
      OrDie(FindRows(*reference.side(), *candidate.side()));
  EXPECT_TRUE(rows.Find({true, 0, 0})->shared);
  EXPECT_FALSE(rows.Find({false, 0, 0})->shared);
  const BatchReadings read =
      ResolveBatchDim(reference.side(), candidate.side(), rows);
  EXPECT_THAT(read.unknown, IsEmpty());
  for (const auto& [id, pieces] : candidate.side()->real()) {
    EXPECT_THAT(pieces.global_shape(), ElementsAre(4)) << ToString(id);
  }
}

// Values of an embedding bag's input: where each row begins, for a rank.
RankGiven Bag(const std::vector<int64_t>& rows,
              const std::vector<int64_t>& offsets, bool is_relative = true) {
  RankGiven out;
  out.notes = {{false, "x", 0, rows},
               {false, "offsets", 0, offsets, is_relative}};
  out.tensors = {{Role::kInput, "", "x", rows},
                 {Role::kInput, "", "offsets", offsets},
                 {Role::kInput, "bag", "1", offsets},
                 {Role::kInput, "bag", "0", rows}};
  return out;
}

TEST(ResolveBatchDim,
     WhatCountsWithinTheBatchOfARankIsUnknownWhereverItIsGiven) {
  const BatchReadings read = Settle({Bag({1, 2, 3, 4}, {0, 3, 5, 6})},
                                    {Bag({1, 2}, {0, 3}), Bag({3, 4}, {0, 1})});
  EXPECT_THAT(read.unknown,
              ElementsAre(Input("", "offsets"), Input("bag", "1")));
}

TEST(ResolveBatchDim, WhatCountsWithinTheSameBatchIsCompared) {
  // No rank has other rows than the reference's.
  EXPECT_THAT(Settle({Bag({1, 2}, {0, 3})}, {Bag({1, 2}, {0, 3})}).unknown,
              IsEmpty());
}

TEST(ResolveBatchDim, OtherValuesThatCountNothingStayAFinding) {
  const BatchReadings read =
      Settle({Bag({1, 2}, {0, 3}, false)}, {Bag({1, 2}, {0, 4}, false)});
  EXPECT_THAT(read.unknown, IsEmpty());
}

}  // namespace
}  // namespace ttrace::fed_inputs_test
