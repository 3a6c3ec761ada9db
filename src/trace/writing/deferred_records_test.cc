#include "src/trace/writing/deferred_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/trace/own_trace.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::deferred_records_test {
namespace {

using testing::ElementsAre;

RecordFields RecordOf(const std::string& fqn, int64_t count) {
  RecordFields record;
  record.id.fqn = fqn;
  record.local_shape = {count};
  record.extent.bytes = count * static_cast<int64_t>(sizeof(float));
  return record;
}

std::vector<float> Ramp(float first, size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

void Put(DeferredRecords& aside, const std::string& fqn,
         const std::vector<float>& values) {
  OrDie(aside.Begin(RecordOf(fqn, static_cast<int64_t>(values.size()))));
  const auto bytes = std::as_bytes(std::span(values));
  OrDie(aside.Write(bytes.first(8)));
  OrDie(aside.Write(bytes.subspan(8)));
}

std::vector<float> Get(const DeferredRecords& aside,
                       const DeferredRecords::Held& held) {
  std::vector<float> out(static_cast<size_t>(held.record.extent.bytes) /
                         sizeof(float));
  OrDie(aside.Read(held, 0, std::as_writable_bytes(std::span(out))));
  return out;
}

TEST(DeferredRecords, ValuesLastUntilTheNextOnesAreDecidedOn) {
  const ScratchFolder folder;
  DeferredRecords aside(folder.path());
  Put(aside, "a", Ramp(1, 5));
  Put(aside, "b", Ramp(10, 3));
  ASSERT_EQ(aside.held().size(), 2u);
  const std::vector<DeferredRecords::Held> first = aside.held();
  EXPECT_EQ(Get(aside, first[0]), Ramp(1, 5));
  EXPECT_EQ(Get(aside, first[1]), Ramp(10, 3));
  aside.Decided();
  EXPECT_TRUE(aside.held().empty());
  Put(aside, "a", Ramp(100, 5));
  EXPECT_EQ(Get(aside, first[0]), Ramp(1, 5)) << "of the iteration before";
  EXPECT_EQ(Get(aside, aside.held()[0]), Ramp(100, 5));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()))
      << "nothing is left of a process that is killed";
}

TEST(DeferredRecords, NothingOutsideOfATensorIsRead) {
  const ScratchFolder folder;
  DeferredRecords aside(folder.path());
  Put(aside, "a", Ramp(1, 5));
  Put(aside, "b", Ramp(10, 3));
  std::vector<std::byte> out(8);
  EXPECT_TRUE(aside.Read(aside.held()[0], 12, out).ok());
  EXPECT_FALSE(aside.Read(aside.held()[0], 16, out).ok());
  EXPECT_FALSE(aside.Read(aside.held()[0], -4, out).ok());
}

// Decides by name: "compared" is, and all else keeps its values.
class ByName final : public Reducer {
 public:
  std::vector<Leg> BasesOf(const Leg&) const override { return {}; }
  bool IsBase(const RecordFields&) const override { return false; }
  Result<std::optional<Reduced>> Reduce(const RecordFields&, const StridedView&,
                                        const RecordFields&,
                                        WrittenRecords&) override {
    return std::optional<Reduced>();
  }
  Result<std::optional<Summarized>> Summarize(const RecordFields&,
                                              const StridedView&) override {
    return std::optional<Summarized>();
  }
  bool IsDecidedLater(const RecordFields& record) const override {
    return record.id.fqn != "direct";
  }
  Decisions Decide(int, const DeferredRecords& aside,
                   WrittenRecords&) override {
    Decisions out;
    for (const DeferredRecords::Held& held : aside.held()) {
      out.records.emplace_back();
      if (held.record.id.fqn != "compared") continue;
      out.records.back() = Compared{{"real"}, {std::byte{7}}};
    }
    out.notes.emplace_back("decided", "{}");
    return out;
  }
};

class DecidedLater : public testing::Test {
 protected:
  std::unique_ptr<TraceWriter> Open() {
    OrDie(CreateTraceFolder(path_, "{}", true));
    return OrDie(TraceWriter::Open(path_, TensorParallelMeta(0, 1),
                                   std::make_unique<ByName>()));
  }
  std::vector<std::string> Names() {
    trace_ = OrDie(Trace::Open(path_));
    std::vector<std::string> names;
    for (const Record record : trace_->records()) {
      names.push_back(record.id().fqn);
    }
    return names;
  }
  Record At(size_t i) const { return trace_->records()[i]; }

  const ScratchFolder folder_;
  const std::string path_ = folder_ / "trace";
  std::shared_ptr<const Trace> trace_;
};

TEST_F(DecidedLater, RecordsAreWrittenWhenTheirLegIsSealed) {
  const auto writer = Open();
  OrDie(AppendFloats(*writer, "kept", Ramp(1, 2000)));
  OrDie(AppendFloats(*writer, "compared", Ramp(5, 2000)));
  OrDie(AppendFloats(*writer, "direct", Ramp(9, 2000)));
  OrDie(AppendFloats(*writer, "again", Ramp(1, 2000)));
  OrDie(AppendFloats(*writer, "there", Ramp(9, 2000)));
  OrDie(writer->Seal(0, "noise.1"));
  EXPECT_THAT(Names(), ElementsAre("direct")) << "another leg's";
  OrDie(writer->Seal(0, "real"));
  OrDie(writer->Close(true, ""));
  EXPECT_THAT(Names(),
              ElementsAre("direct", "kept", "compared", "again", "there"));
  EXPECT_EQ(ReadFloats(*trace_, At(1)), Ramp(1, 2000));
  EXPECT_THAT(At(2).compared_with(), ElementsAre("real"));
  EXPECT_THAT(OrDie(trace_->ReadInstead(At(2))), ElementsAre(std::byte{7}));
  EXPECT_EQ(At(3).same_as(), At(1).sequence()) << "written while it waited";
  EXPECT_EQ(At(4).same_as(), At(0).sequence());
  EXPECT_EQ(ReadFloats(*trace_, At(4)), Ramp(9, 2000));
  EXPECT_EQ(trace_->ranks()[0].notes.at(0).kind, "decided");
}

TEST_F(DecidedLater, WhatIsNeverDecidedOnKeepsItsValues) {
  {
    const auto writer = Open();
    OrDie(AppendFloats(*writer, "compared", Ramp(5, 20)));
    OrDie(writer->Close(false, "it ends"));
  }
  EXPECT_THAT(Names(), ElementsAre("compared"));
  EXPECT_EQ(ReadFloats(*trace_, At(0)), Ramp(5, 20));
  {
    const auto writer = Open();
    OrDie(AppendFloats(*writer, "compared", Ramp(6, 20)));
  }
  EXPECT_THAT(Names(), ElementsAre("compared")) << "a writer that goes away";
  EXPECT_EQ(ReadFloats(*trace_, At(0)), Ramp(6, 20));
}

TEST(OwnTrace, ReadsWhatWasWrittenAndWhatWasDeferredRecords) {
  const ScratchFolder folder;
  const std::string path = folder / "trace";
  WriteSmallTrace(path, true);
  const auto trace = OrDie(Trace::Open(path));
  DeferredRecords aside(folder.path());
  const std::vector<float> values = {10, 11};
  OrDie(aside.Begin(trace->records()[1].fields()));
  OrDie(aside.Write(std::as_bytes(std::span(values))));
  WrittenRecords written(path + "/rank-00000.r0");
  RankTrace rank;
  rank.meta = TensorParallelMeta(0, 1);
  OwnTrace own(std::move(rank), aside, written);
  const Record first = own.Add(trace->records()[0].fields());
  const Record held = own.Add(aside.held()[0]);
  EXPECT_EQ(ReadFloats(own, first), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(ReadFloats(own, held), values);
  EXPECT_LT(first.sequence(), held.sequence());
  std::vector<std::byte> out(8);
  EXPECT_FALSE(own.Read(first, 8, out).ok());
  EXPECT_FALSE(own.Read(held, 8, out).ok());
}

}  // namespace
}  // namespace ttrace::deferred_records_test
