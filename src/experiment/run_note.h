// RunNote: something about a run, or about the check of it, that a reader of
// the verdict should know. A kind, by which it is decided what follows, and a
// sentence, made where the matter is known.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_EXPERIMENT_RUN_NOTE_H_
#define TTRACE_SRC_EXPERIMENT_RUN_NOTE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace ttrace {

// In the order of what matters most to a reader.
enum class NoteKind : uint8_t {
  // Leave the verdict open (LeavesVerdictOpen).
  kUnsupported,      // this version cannot judge it
  kNoSuchIteration,  // one run lacks iterations that the other has
  kOtherRows,        // what the runs were fed is not of the same rows
  kComputation,      // the runs compute different functions
  kDropout,          // is on: masks cannot match
  kUnlikeDraws,      // modules draw random numbers that the other run draws not
  kOverflow,    // gradients under a loss scale, at other elements in each run
  kNotGrafted,  // tensors that kept the candidate's own values
  kDamage,      // bytes of a trace are not what was written
  kDefect,      // the trace cannot be complete
  kStopped,     // capture gave up
  // Whose rows were read.
  kRowsFed,
  // What was not looked at.
  kNotObserved,   // modules
  kCompiled,      // regions, of which the inside is not seen
  kNotRecorded,   // tensors
  kNoEvidence,    // values of a kind, of which none can be judged
  kZeroEvidence,  // the same, as they are zero in the reference
  kLegSkipped,
  kLegNotSealed,  // a rank did not end it
  kLegNotUsed,
  kPrecisions,  // the runs compute in other precisions
  kNoFp32Leg,
  kNotIsolated,     // modules
  kUnfinishedSums,  // over micro-batches
  // What was found beside the verdict.
  kGraftDiffers,      // own values differed and were replaced
  kModulesBeside,     // modules like the model or a part of it
  kGraftedInputs,     // no data iterator: the model's own inputs are replaced
  kDropoutOff,        // was switched off
  kNotRepeatable,     // a replay is not what the run was
  kStateLeft,         // by a leg
  kAttribute,         // a parameter's attribute that is not as expected
  kLossUnit,          // a convention of scaling
  kReductionHook,     // gradients are reduced by a function of the run's own
  kRowsReordered,     // rows were matched by content
  kIsolation,         // what it came to
  kJoined,            // culprits that share the explanation of another one
  kSkippedStep,       // the optimizer's
  kClearedGradients,  // the same, as the loop cleared them
  kPaddingGradient,   // padding that takes part in what is computed
  kZeroStep,          // the learning rate is 0
  kMalformed,         // notes that cannot be read
  kNotice,            // said by capture, or by a part of the check
};
std::string_view ToString(NoteKind kind);

// Whether a verdict may not be "within" beside such a note.
bool LeavesVerdictOpen(NoteKind kind);

struct RunNote {
  NoteKind kind = NoteKind::kNotice;
  std::string text;         // one sentence
  std::string way_out;      // what the user can do; may be empty
  std::string folder = {};  // of the trace; empty: about the check

  bool leaves_verdict_open() const { return LeavesVerdictOpen(kind); }
};

// The sentence, with the folder that it is about in front and the way out
// behind.
std::string NoteWords(const RunNote& note);

// "{what} is not supported: {reason}".
RunNote Unsupported(const std::string& what, const std::string& reason,
                    std::string way_out);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_RUN_NOTE_H_
