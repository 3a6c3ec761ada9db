// One way to damage or to forge a trace, and the way back.
//
// Thread safety: one thread.

#ifndef TTRACE_FUZZ_MUTATION_H_
#define TTRACE_FUZZ_MUTATION_H_

#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/trace_files.h"

namespace ttrace {

// What may follow from a mutation.
enum class Expected : uint8_t {
  // Bytes are not those that were written: an error, an inconclusive verdict,
  // or, where nobody read them, the report of the undamaged traces.
  kNoticed,
  // What a killed process leaves: no other verdict than before, or none.
  kNoOtherVerdict,
  // Everything fits together, checksums too: another run. Any report, in
  // bounded memory and time.
  kAnyReport,
};

struct MutationKind {
  std::string_view name;
  Expected expected;
};
// The rows of the table.
const std::vector<MutationKind>& MutationKinds();

// Two sides, and the candidate's files of another run of the same shape.
struct Pair {
  TraceFiles reference;
  TraceFiles candidate;
  TraceFiles other_run;
};

class Mutation {
 public:
  Mutation() = default;
  Mutation(Mutation&&) = default;
  ~Mutation() { Undo(); }

  // Damages a random place of one of the two sides, or swaps between them.
  // Leaves everything alone if `kind` cannot be done here.
  void Apply(const Pair& pair, size_t kind, std::mt19937_64& random);
  void Undo();

  const std::string& what() const { return what_; }

 private:
  friend class Mutator;
  std::string what_;
  std::vector<std::function<void()>> undo_;
};

}  // namespace ttrace

#endif  // TTRACE_FUZZ_MUTATION_H_
