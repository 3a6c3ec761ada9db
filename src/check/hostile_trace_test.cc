// What a trace declares costs no memory and no time; what it holds may.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/check/check.h"
#include "src/check/testing/synthetic_run.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::hostile_trace_test {
namespace {

constexpr int64_t kHuge = int64_t{1} << 36;

// One element of a tensor that declares `global`, its first.
void AppendCorner(TraceWriter& writer, const Leg& leg, const std::string& fqn,
                  Role role, Pass pass, const Shape& global) {
  RecordSpec spec;
  spec.fqn = fqn;
  spec.role = role;
  spec.local_shape.assign(global.size(), 1);
  spec.global_shape = global;
  spec.batch_dim = 0;
  if (global.size() > 1) {
    spec.local_shape[1] = global[1];
  }
  Occurrence at = RealOccurrence();
  at.leg = leg;
  at.pass = pass;
  at.micro_batch = 0;
  const std::vector<float> values(64, 1.0f);
  const std::vector<int64_t> strides(global.size(), 1);
  OrDie(writer.Append(spec, at,
                      {std::as_bytes(std::span(values)).data(), strides}));
}

void WriteHostile(const std::string& folder) {
  OrDie(CreateTraceFolder(folder, "{}", false));
  const auto writer = OpenRank(folder, 0, 1);
  for (const Leg leg : {"real", "noise.1"}) {
    AppendCorner(*writer, leg, "", Role::kInput, Pass::kForward, {kHuge, 4});
    AppendCorner(*writer, leg, "fc", Role::kOutput, Pass::kForward, {kHuge});
    AppendCorner(*writer, leg, "fc.weight", Role::kGradReduced, Pass::kBackward,
                 {kHuge, 8});
    AppendCorner(*writer, leg, "", Role::kGradNorm, Pass::kOptimizer, {kHuge});
    AppendCorner(*writer, leg, "f64", Role::kGradReduced, Pass::kBackward,
                 {kHuge << 26});
    OrDie(writer->Seal(0, leg));
  }
  OrDie(writer->Close(true, ""));
}

TEST(HostileTrace, DeclaredSizesDriveNeitherMemoryNorLoops) {
  const ScratchFolder folder;
  WriteHostile(folder / "ref");
  WriteHostile(folder / "cand");
  for (const bool with_reference : {true, false}) {
    CheckOptions options;
    if (with_reference) options.reference = folder / "ref";
    options.candidate = folder / "cand";
    const auto result = RunCheck(options);
    ASSERT_TRUE(result.ok()) << result.error().message();
    EXPECT_TRUE(result->culprits.empty());
    EXPECT_LT(result->bytes_compared, 1 << 16);
  }
}

}  // namespace
}  // namespace ttrace::hostile_trace_test
