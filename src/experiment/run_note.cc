#include "src/experiment/run_note.h"

#include <fmt/format.h>

#include <utility>

namespace ttrace {

std::string_view ToString(NoteKind kind) {
  switch (kind) {
    case NoteKind::kUnsupported:
      return "unsupported";
    case NoteKind::kNoSuchIteration:
      return "missing_iteration";
    case NoteKind::kOtherRows:
      return "other_rows";
    case NoteKind::kComputation:
      return "other_computation";
    case NoteKind::kDropout:
      return "dropout_on";
    case NoteKind::kUnlikeDraws:
      return "unlike_draws";
    case NoteKind::kOverflow:
      return "overflow";
    case NoteKind::kNotGrafted:
      return "not_grafted";
    case NoteKind::kDamage:
      return "damage";
    case NoteKind::kDefect:
      return "defect";
    case NoteKind::kStopped:
      return "stopped";
    case NoteKind::kRowsFed:
      return "rows_fed";
    case NoteKind::kNotObserved:
      return "not_observed";
    case NoteKind::kCompiled:
      return "compiled";
    case NoteKind::kNotRecorded:
      return "not_recorded";
    case NoteKind::kNoEvidence:
      return "no_evidence";
    case NoteKind::kZeroEvidence:
      return "zero_evidence";
    case NoteKind::kLegSkipped:
      return "leg_skipped";
    case NoteKind::kLegNotSealed:
      return "leg_not_sealed";
    case NoteKind::kLegNotUsed:
      return "leg_not_used";
    case NoteKind::kPrecisions:
      return "precisions";
    case NoteKind::kNoFp32Leg:
      return "no_fp32_leg";
    case NoteKind::kNotIsolated:
      return "not_isolated";
    case NoteKind::kUnfinishedSums:
      return "unfinished_sums";
    case NoteKind::kGraftDiffers:
      return "graft_differs";
    case NoteKind::kModulesBeside:
      return "modules_beside";
    case NoteKind::kGraftedInputs:
      return "grafted_inputs";
    case NoteKind::kDropoutOff:
      return "dropout_off";
    case NoteKind::kNotRepeatable:
      return "not_repeatable";
    case NoteKind::kStateLeft:
      return "state_left";
    case NoteKind::kAttribute:
      return "attribute";
    case NoteKind::kReductionHook:
      return "reduction_hook";
    case NoteKind::kLossUnit:
      return "loss_unit";
    case NoteKind::kRowsReordered:
      return "rows_reordered";
    case NoteKind::kIsolation:
      return "isolation";
    case NoteKind::kJoined:
      return "joined";
    case NoteKind::kSkippedStep:
      return "skipped_step";
    case NoteKind::kClearedGradients:
      return "cleared_gradients";
    case NoteKind::kPaddingGradient:
      return "padding_gradient";
    case NoteKind::kZeroStep:
      return "zero_step";
    case NoteKind::kMalformed:
      return "malformed";
    case NoteKind::kNotice:
      return "notice";
  }
  return "notice";
}

bool LeavesVerdictOpen(NoteKind kind) {
  switch (kind) {
    case NoteKind::kUnsupported:
    case NoteKind::kNoSuchIteration:
    case NoteKind::kOtherRows:
    case NoteKind::kComputation:
    case NoteKind::kDropout:
    case NoteKind::kUnlikeDraws:
    case NoteKind::kOverflow:
    case NoteKind::kNotGrafted:
    case NoteKind::kDamage:
    case NoteKind::kDefect:
    case NoteKind::kStopped:
      return true;
    default:
      return false;
  }
}

std::string NoteWords(const RunNote& note) {
  std::string out = note.text;
  if (!note.folder.empty()) out = note.folder + ": " + out;
  if (!note.way_out.empty()) out += " (" + note.way_out + ")";
  return out;
}

RunNote Unsupported(const std::string& what, const std::string& reason,
                    std::string way_out) {
  return {NoteKind::kUnsupported,
          fmt::format("{} is not supported: {}", what, reason),
          std::move(way_out)};
}

}  // namespace ttrace
