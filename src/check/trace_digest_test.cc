#include "src/check/trace_digest.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "src/check/testing/synthetic_run.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::trace_digest_test {
namespace {

uint64_t Digest(const SyntheticRun& run,
                const std::vector<std::string>& legs = {}) {
  const ScratchFolder folder;
  run.Write(folder / "trace");
  return DigestOf(OrDie(Side::Open(folder / "trace", legs)));
}

TEST(TraceDigest, IsOfWhatATraceHoldsAndNotOfWhereItLies) {
  SyntheticRun run;
  run.mesh = {{"tp", 2}};
  run.legs = {"real", "noise.1"};
  EXPECT_EQ(Digest(run), Digest(run));
  std::set<uint64_t> seen = {Digest(run)};
  for (const auto& change : std::vector<std::function<void(SyntheticRun*)>>{
           [](auto* r) {
             r->mesh = {{"dp", 2}};
           },
           [](auto* r) {
             r->legs = {"real", "noise.2"};
           },
           [](auto* r) { r->noise = 0x1p-20f; },
           [](auto* r) {
             r->notes = {{"graft", R"({"what":"data"})"}};
           },
           [](auto* r) { r->run_id = "another"; },
           [](auto* r) { r->select = "fqn=fc"; },
           [](auto* r) { r->unsealed_legs = {"noise.1"}; },
           [](auto* r) { r->stopped_ranks = {1}; },
           [](auto* r) { r->omit_ranks = {1}; },
           [](auto* r) {
             r->scale_of_gradients = {1, 2};
           }}) {
    SyntheticRun other = run;
    change(&other);
    EXPECT_TRUE(seen.insert(Digest(other)).second) << seen.size();
  }
  const ScratchFolder leg;
  run.Write(leg / "leg");
  EXPECT_TRUE(seen.insert(Digest(run, {leg / "leg"})).second);
}

}  // namespace
}  // namespace ttrace::trace_digest_test
