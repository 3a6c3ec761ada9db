// RunNote: something about a run, or about the check of it, that a reader of
// the verdict should know. Typed: what is decided by a note is decided by its
// kind; words are made by src/report/note_words.h.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_EXPERIMENT_RUN_NOTE_H_
#define TTRACE_SRC_EXPERIMENT_RUN_NOTE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// In the order of what matters most to a reader.
enum class NoteKind : uint8_t {
  // Leave the verdict open.
  kUnsupported,  // names[0] is used, which this version cannot judge
  kComputation,  // names[0] is numbers[0] in the reference, numbers[1] here
  kDropout,      // is on: masks cannot match. numbers[0]: probability
  kUnlikeDraws,  // count modules of names; numbers[0]: tensors not judged
  kOverflow,     // count gradients; numbers: iteration, and of the first, which
                 // names[0] is, the elements of the candidate and reference
  kNotGrafted,   // count of names kept the candidate's own values
  kDamage,       // reason: rank, file and tensor
  kDefect,       // reason: why the trace cannot be complete
  kStopped,      // capture gave up. reason
  // Whose rows were read.
  kRowsFed,  // ranks; reason
  // What was not looked at.
  // count modules of class names[0]; reason; numbers[0]: of them, those of
  // which something was compared
  kNotObserved,
  kCompiled,        // count regions, names: modules
  kNotRecorded,     // count tensors, names: examples; reason
  kNoEvidence,      // count values of names[0] cannot be judged; reason
  kZeroEvidence,    // count values of names[0] are zero in the reference
  kLegSkipped,      // names: legs; reason
  kLegNotSealed,    // names: legs that a rank did not end, not used
  kLegNotUsed,      // names[0]: leg; reason
  kPrecisions,      // names: the reference's and the candidate's dtype
  kNoFp32Leg,       // names[0]: which side has none
  kNotIsolated,     // count modules, names[0]: the first; reason
  kUnfinishedSums,  // count, names[0]: the first; ranks[0]: whose
  // What was found beside the verdict.
  kGraftDiffers,   // numbers: iteration, differing, of; names: what, examples
  kModulesBeside,  // count modules like the model or a part of it, names:
                   // classes
  kGraftedInputs,  // no data iterator: the model's own inputs are replaced
  kDropoutOff,     // was switched off; numbers[0]: largest probability
  kNotRepeatable,  // count tensors; numbers[0]: largest difference
  kStateLeft,      // names[0]: leg; reason
  kAttribute,      // count times, reason: which, and what is expected
  kLossUnit,       // numbers[0]: of the candidate; then iterations
  kReductionHook,  // names: hook, dtype that it sends; reason: why not known
  kRowsReordered,  // numbers: iterations
  kIsolation,      // reason: what isolation came to
  kJoined,         // count culprits share the explanation of another one
  kSkippedStep,    // numbers[0]: iteration; reason
  kClearedGradients,  // the same, as the loop cleared them; ranks: that did
  // names: the first of count tensors; numbers: of the candidate, the reference
  kPaddingGradient,
  kZeroStep,   // numbers[0]: iteration; the learning rate is 0
  kMalformed,  // count notes are unreadable; names[0]: of what
  kNotice,     // reason
};
std::string_view ToString(NoteKind kind);

struct RunNote {
  NoteKind kind = NoteKind::kNotice;
  std::string folder;  // of the trace; empty: about the check
  std::string reason;
  std::string way_out;  // what the user can do; may be empty
  int64_t count = 1;    // distinct things, not ranks that say it
  std::vector<std::string> names;
  std::vector<int> ranks;
  std::vector<double> numbers;

  // Whether a verdict may be "within" or "diverged" in spite of it.
  bool leaves_verdict_open() const { return kind <= NoteKind::kStopped; }
};

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_RUN_NOTE_H_
