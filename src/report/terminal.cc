// What a person reads after a check: the verdict first, then what it rests on,
// then where, why, what else, and what to type next. A clean result is short.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/judge/origin_words.h"
#include "src/judge/reason_words.h"
#include "src/localize/bug_class.h"
#include "src/localize/contradiction_words.h"
#include "src/report/page.h"
#include "src/report/render.h"

namespace ttrace {
namespace {

// Lists longer than this are read in result.json.
constexpr size_t kMaxListed = 8;
// The most important ones come first. All are in report.txt and result.json.
constexpr size_t kMaxNotes = 3;

std::string Name(const std::string& fqn) {
  return fqn.empty() ? "(the model itself)" : fqn;
}

std::string Joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

// "grad_input hidden_states", with the call and the pass where they say more
// than the role does.
std::string TensorWords(const TensorId& id) {
  std::string out(ToString(id.role));
  if (!id.arg.empty()) out += " " + id.arg;
  if (id.call > 0) out += fmt::format(", call {}", id.call);
  if (id.pass == Pass::kRecompute) out += ", recomputed forward";
  return out;
}

// The same behind its name, without saying "loss loss" or "data data".
std::string FullWords(const TensorId& id) {
  if (id.fqn == ToString(id.role)) return TensorWords(id);
  return Name(id.fqn) + " " + TensorWords(id);
}

std::string PlaceWords(const Culprit& culprit) {
  return fmt::format("{}, {}", ToString(culprit.direction),
                     ToString(culprit.stage));
}

const TensorJudgement* FindTensor(const CheckResult& result,
                                  const TensorId& id) {
  for (const TensorJudgement& tensor : result.tensors) {
    if (tensor.id == id) return &tensor;
  }
  return nullptr;
}

void AddVerdict(const CheckResult& result, Page* page) {
  std::string_view word = "INCONCLUSIVE";
  Tone tone = Tone::kDoubtful;
  if (result.verdict == Verdict::kDiverged) {
    word = "DIVERGED";
    tone = Tone::kBad;
  } else if (result.verdict == Verdict::kWithin) {
    word = "WITHIN BOUNDS";
    tone = Tone::kGood;
  } else if (result.verdict == Verdict::kBitwiseEqual) {
    word = "BITWISE EQUAL";
    tone = Tone::kGood;
  }
  page->Section(word, tone);
  page->Text(result.reason);
}

// What is incomplete stands right below the verdict: a reader who stops there
// must not take a partial check for a whole one.
void AddCoverage(const CheckResult& result, Page* page) {
  const Coverage& coverage = result.coverage;
  const int64_t unmatched = coverage.reference_only + coverage.candidate_only;
  std::string line =
      fmt::format("{} of {} compared", FormatCount(coverage.compared),
                  Counted(coverage.compared + unmatched, "tensor"));
  if (!result.has_reference) {
    page->Text(Counted(coverage.compared, "tensor") +
               " checked without a reference");
  } else if (unmatched == 0) {
    page->Text(line + ", none unmatched");
  } else {
    line += fmt::format(
        ": INCOMPLETE, {} only in the reference, {} only in the candidate",
        FormatCount(coverage.reference_only),
        FormatCount(coverage.candidate_only));
    page->Text(line, Tone::kDoubtful);
    size_t shown = 0;
    for (const TensorJudgement& tensor : result.tensors) {
      if (tensor.verdict != TensorVerdict::kUnmatched || tensor.excused) {
        continue;
      }
      if (++shown > 3) break;
      std::string example = "- " + FullWords(tensor.id);
      if (!tensor.reason.none()) example += ": " + ReasonWords(tensor.reason);
      page->Text(example, Tone::kPlain, 2);
    }
  }
  const auto& [values, sketches, digests] = result.by_fidelity;
  if (sketches + digests > 0) {
    page->Text(fmt::format("compared by: values of {}, sketches of {}, "
                           "digests of {}",
                           FormatCount(values), FormatCount(sketches),
                           FormatCount(digests)),
               Tone::kPlain, 2);
  }
  if (result.not_checkable > 0) {
    line = fmt::format("{} of them NOT CHECKABLE",
                       FormatCount(result.not_checkable));
    for (const TensorJudgement& tensor : result.tensors) {
      if (tensor.verdict != TensorVerdict::kNotCheckable || tensor.excused) {
        continue;
      }
      line += ", first " + FullWords(tensor.id);
      if (!tensor.reason.none()) line += ": " + ReasonWords(tensor.reason);
      break;
    }
    page->Text(line, Tone::kDoubtful, 2);
  }
  if (!coverage.excused.empty()) {
    page->Text(FormatCount(coverage.excused_count()) +
               " more not compared, for a known reason:");
    size_t shown = 0;
    for (const auto& [reason, count] : coverage.excused) {
      if (++shown > kMaxListed) break;
      page->Text(fmt::format("- {}: {}", FormatCount(count), reason),
                 Tone::kPlain, 2);
    }
  }
}

std::string SideWords(const SideSummary& side) {
  std::string out = Counted(side.world_size, "rank");
  if (!side.mesh.empty() && side.world_size != 1) out += " " + side.mesh;
  if (!side.legs.empty()) out += ", legs " + Joined(NamesOf(side.legs));
  return out;
}

void AddChecked(const CheckResult& result, Page* page) {
  page->Section("CHECKED");
  if (result.candidate.world_size == 0) {  // it ended before that
    page->Text("nothing");
    return;
  }
  AddCoverage(result, page);
  std::vector<std::vector<std::string>> sides;
  sides.push_back({"candidate", SideWords(result.candidate)});
  sides.push_back({"reference", result.has_reference
                                    ? SideWords(result.reference)
                                    : "none: only copies, shapes, non-finite "
                                      "values, reductions and the norm"});
  page->Table(sides);
  std::string line = "no iteration";
  if (!result.iterations.empty()) {
    line =
        fmt::format("iteration{} {}", result.iterations.size() == 1 ? "" : "s",
                    fmt::join(result.iterations, ", "));
  }
  line += "; " + FormatSeconds(result.seconds);
  const auto bytes = static_cast<double>(result.bytes_compared);
  if (bytes > 0 && result.seconds > 0) {
    line += fmt::format(", {} at {}/s", FormatBytes(bytes),
                        FormatBytes(bytes / result.seconds));
  }
  page->Text(line);
}

// One row a leg: how far out, against which bound, and whose word that is.
void AddLegs(const TensorJudgement& tensor, Page* page) {
  std::vector<std::vector<std::string>> rows;
  rows.push_back(
      {"leg", "error", "bound", "headroom", "where the bound is from"});
  for (size_t i = 0; i < tensor.legs.size(); ++i) {
    const LegJudgement& leg = tensor.legs[i];
    std::string origin = OriginWords(leg);
    if (!leg.checkable) {
      origin = origin.empty() ? "not checkable" : "not checkable: " + origin;
    }
    rows.push_back({leg.leg.name(), FormatError(leg.deciding_err()),
                    FormatError(leg.deciding_bound()),
                    leg.checkable ? FormatHeadroom(leg.headroom) : "-",
                    origin});
  }
  if (rows.size() > 1) page->Table(rows);
}

void AddReplicas(const TensorJudgement& tensor, Page* page) {
  if (!tensor.replicas_differ) return;
  const ReplicaComparison& replicas = tensor.replicas;
  std::string line = fmt::format(
      "copies: {} of {} differ, by up to {}", FormatCount(replicas.differing),
      FormatCount(replicas.copies), FormatError(replicas.worst_rel_err));
  if (!replicas.mesh_dims.empty()) {
    line += ", along " + Joined(replicas.mesh_dims);
  }
  if (!replicas.differing_ranks.empty()) {
    line += " (" + FormatRanks(replicas.differing_ranks, 0) + ")";
  }
  page->Text(line, Tone::kPlain, 2);
}

void AddNonFinite(const TensorJudgement& tensor, Page* page) {
  if (!tensor.nonfinite) return;
  for (const LegJudgement& leg : tensor.legs) {
    const ErrorStats& stats = leg.stats;
    if (stats.nonfinite_cand == 0 && stats.nonfinite_differ == 0) continue;
    page->Text(fmt::format("non-finite in leg {}: {} in the candidate, {} in "
                           "the reference, {} positions disagree",
                           leg.leg.name(), FormatCount(stats.nonfinite_cand),
                           FormatCount(stats.nonfinite_ref),
                           FormatCount(stats.nonfinite_differ)),
               Tone::kPlain, 2);
  }
}

// Dataflow only is the rule, and said by `where`.
void AddFoundBy(const Culprit& culprit, Page* page) {
  if (culprit.found_by != std::vector<std::string>{"dataflow"}) {
    page->Text(
        fmt::format("found by {}", fmt::join(culprit.found_by, " and ")));
  }
  if (!culprit.disagreement.empty()) {
    page->Text("but: " + culprit.disagreement, Tone::kDoubtful);
  }
}

// Not broken: a path is copied.
void AddSource(const Culprit& culprit, Page* page) {
  if (!culprit.source.file.empty()) page->Verbatim(culprit.source.words);
}

void AddFirst(const CheckResult& result, const Culprit& culprit, Page* page) {
  page->Section("FIRST", Tone::kBad);
  page->Text(Name(culprit.fqn), Tone::kStrong);
  if (!culprit.name_in_candidate.empty()) {
    page->Text("in the candidate: " + culprit.name_in_candidate);
  }
  AddSource(culprit, page);
  page->Text(
      fmt::format("{}: {}", PlaceWords(culprit), TensorWords(culprit.tensor)));
  page->Text(
      fmt::format("iteration {}, {}", culprit.iteration,
                  FormatRanks(culprit.ranks, result.candidate.world_size)));
  if (culprit.tensor.fqn != culprit.fqn) {
    page->Text("seen first in " + FullWords(culprit.tensor));
  }
  if (!culprit.where.empty()) page->Text(culprit.where);
  AddFoundBy(culprit, page);
  if (!culprit.OfValues()) return;
  const TensorJudgement* tensor = FindTensor(result, culprit.tensor);
  if (tensor == nullptr) {
    if (culprit.headroom > 0) {
      page->Text("headroom " + FormatHeadroom(culprit.headroom));
    }
    return;
  }
  // Why it cannot be judged end to end is no reason where isolation convicts.
  const bool open_end_to_end =
      tensor->verdict == TensorVerdict::kNotCheckable && tensor->out_isolated();
  if (!tensor->reason.none() && !open_end_to_end) {
    page->Text(ReasonWords(tensor->reason));
  }
  if (!result.bitwise) {
    AddLegs(*tensor, page);
  } else if (const LegJudgement* leg = tensor->deciding();
             leg != nullptr && leg->fidelity == Fidelity::kValues) {
    page->Text("relative error " + FormatError(leg->err));
  }
  AddReplicas(*tensor, page);
  AddNonFinite(*tensor, page);
}

void AddWhy(const Culprit& culprit, Page* page) {
  page->Section("WHY", Tone::kBad);
  if (culprit.classes.empty()) {
    page->Text(std::string(kNoClassWords));
    return;
  }
  for (const Diagnosis& diagnosis : culprit.classes) {
    page->Text(fmt::format("{}: {}", LetterOf(diagnosis.bug_class),
                           NameOf(diagnosis.bug_class, culprit.tensor.role)),
               Tone::kStrong);
    if (!diagnosis.evidence.empty()) page->Text(diagnosis.evidence);
  }
}

void AddHints(const Culprit& culprit, Page* page) {
  page->Section("LOOK");
  for (const std::string& hint : culprit.hints) {
    page->Text("- " + hint, Tone::kPlain, 2);
  }
}

void AddAlso(const CheckResult& result, const Culprit& culprit, Page* page) {
  page->Section("ALSO");
  const Culprit::Affected& affected = culprit.affected;
  if (affected.count > 1) {
    std::vector<std::vector<std::string>> rows;
    for (const std::string& example : affected.examples) {
      if (example == culprit.fqn || rows.size() == kMaxListed) continue;
      rows.push_back({"- " + ShortenMiddle(Printable(Name(example)),
                                           page->columns() - 2)});
    }
    // One tensor in several iterations or calls has nothing to list.
    page->Text(
        fmt::format("{} of {} {} tensors share this cause{}",
                    FormatCount(affected.count), FormatCount(affected.of),
                    ToString(culprit.tensor.role), rows.empty() ? "" : ":"));
    page->Table(rows);
  }
  if (result.culprits.size() > 1) {
    page->Text(Counted(static_cast<int64_t>(result.culprits.size()) - 1,
                       "further culprit") +
               ":");
    std::vector<std::vector<std::string>> rows;
    std::vector<std::string> sources;
    for (size_t i = 1; i < result.culprits.size(); ++i) {
      if (rows.size() == kMaxListed) break;
      const Culprit& other = result.culprits[i];
      std::vector<std::string> letters;
      for (const Diagnosis& diagnosis : other.classes) {
        letters.emplace_back(LetterOf(diagnosis.bug_class));
      }
      rows.push_back(
          {"- " + Name(other.fqn),
           fmt::format("{}: {}, headroom {}{}", ToString(other.tensor.role),
                       PlaceWords(other), FormatHeadroom(other.headroom),
                       letters.empty() ? "" : ", " + Joined(letters))});
      sources.push_back(other.source.words);
    }
    page->Table(rows, sources);
    if (result.culprits.size() - 1 > rows.size()) {
      page->Text(fmt::format("- and {} more in result.json",
                             FormatCount(static_cast<int64_t>(
                                 result.culprits.size() - 1 - rows.size()))));
    }
  }
  if (result.downstream > 0) {
    const bool one = result.downstream == 1;
    page->Text(fmt::format(
        "{} later {} {} too, downstream of {}", FormatCount(result.downstream),
        one ? "tensor" : "tensors",
        result.bitwise ? (one ? "differs" : "differ")
                       : (one ? "is out of bounds" : "are out of bounds"),
        result.culprits.size() > 1 ? "these" : "this"));
  }
}

// Each of the first few with what speaks against it.
void AddContested(const CheckResult& result, Page* page) {
  if (result.contested.empty()) return;
  page->Section("OPEN", Tone::kDoubtful);
  for (size_t i = 0; i < result.contested.size(); ++i) {
    if (i == kMaxListed) {
      page->Text(fmt::format(
          "- and {} more in result.json",
          FormatCount(static_cast<int64_t>(result.contested.size() - i))));
      break;
    }
    const Culprit& culprit = result.contested[i];
    page->Text(fmt::format("{}, {}, iteration {}: headroom {}",
                           FullWords(culprit.tensor), PlaceWords(culprit),
                           culprit.iteration,
                           FormatHeadroom(culprit.headroom)));
    AddSource(culprit, page);
    for (const Contradiction& one : culprit.contradictions) {
      page->Text("but: " + ContradictionWords(one), Tone::kDoubtful, 2);
    }
  }
}

// Only with --verbose: each diverged tensor in the order of execution.
void AddDiverged(const CheckResult& result, Page* page) {
  page->Section("TENSORS");
  for (const TensorJudgement& tensor : result.tensors) {
    if (!tensor.diverged() && !tensor.out_isolated()) continue;
    page->Text(fmt::format("{}, iteration {}", FullWords(tensor.id),
                           tensor.id.iteration));
    for (const Culprit& culprit : result.culprits) {
      if (culprit.tensor == tensor.id) AddSource(culprit, page);
    }
    AddLegs(tensor, page);
    AddReplicas(tensor, page);
    AddNonFinite(tensor, page);
  }
}

// "3 of 4,096 tokens routed otherwise, all within round-off"
std::string RoutingWords(const RoutingSummary& routing) {
  const int64_t beyond = routing.otherwise - routing.tied;
  return fmt::format(
      "{} of {} routed otherwise, {}", FormatCount(routing.otherwise),
      Counted(routing.tokens, "token"),
      beyond == 0 ? "all within round-off"
                  : FormatCount(beyond) + " of them beyond round-off");
}

// "gradients: 25 not judged end to end, 20 of them in isolation; the first: its
// bound of 0.5 is too wide to mean anything". What is missing from a count of
// clean ones need not be wrong.
std::string OpenWords(const CleanCount& count) {
  std::string out = fmt::format("{}: {} not judged end to end", count.kind,
                                FormatCount(count.open));
  if (count.open_but_isolated > 0) {
    out += count.open_but_isolated == count.open
               ? ", but in isolation"
               : fmt::format(", {} of them in isolation",
                             FormatCount(count.open_but_isolated));
  }
  const std::string why = ReasonWords(count.first_open);
  return why.empty() ? out : out + "; the first: " + why;
}

void AddClean(const CheckResult& result, Page* page) {
  page->Section("CLEAN");
  std::vector<std::string> counts;
  for (const CleanCount& count : result.clean) {
    counts.push_back(fmt::format("{} {} of {}", count.kind,
                                 FormatCount(count.clean),
                                 FormatCount(count.of)));
  }
  if (!counts.empty()) page->Text(Joined(counts));
  for (const CleanCount& count : result.clean) {
    if (count.open > 0) page->Text(OpenWords(count), Tone::kDoubtful, 2);
  }

  // How close a passing run came to failing says whether to trust the pass.
  const TensorJudgement* closest = nullptr;
  for (const TensorJudgement& tensor : result.tensors) {
    const bool passed = tensor.verdict == TensorVerdict::kWithin ||
                        tensor.verdict == TensorVerdict::kSuspect;
    if (!passed || std::isnan(tensor.headroom)) continue;
    if (closest == nullptr || tensor.headroom > closest->headroom) {
      closest = &tensor;
    }
  }
  if (closest != nullptr) {
    page->Text(
        fmt::format("closest to its bound: headroom {}, {}",
                    FormatHeadroom(closest->headroom), FullWords(closest->id)),
        Tone::kPlain, 2);
  }
  if (result.suspects > 0) {
    page->Text(
        Counted(result.suspects, "suspect") + " (headroom 0.5 to 1), no fault",
        Tone::kDoubtful);
  }
  if (result.routing.otherwise > 0) page->Text(RoutingWords(result.routing));
}

// The three that matter, unless all are wanted.
void AddNotes(const CheckResult& result, bool all, Page* page) {
  if (result.notes.empty()) return;
  page->Section("NOTES");
  size_t shown = 0;
  for (const RunNote& note : result.notes) {
    if (!all && shown == kMaxNotes) break;
    page->Text("- " + NoteWords(note), Tone::kPlain, 2);
    ++shown;
  }
  if (shown < result.notes.size()) {
    page->Text(fmt::format(
        "- and {} more: ttrace inspect shows all of a result or a trace",
        FormatCount(static_cast<int64_t>(result.notes.size() - shown))));
  }
}

void AddNext(const CheckResult& result, Page* page) {
  page->Section("NEXT");
  for (const std::string& step : result.next_steps) {
    // A command is to be copied, so it is never broken.
    if (step.find("ttrace ") != std::string::npos) {
      page->Verbatim(step);
    } else {
      page->Text(step);
    }
  }
}

}  // namespace

std::string RenderTerminal(const CheckResult& result,
                           const TerminalOptions& options) {
  Page page(options.width, options.color);
  page.SpaceSections(!result.culprits.empty());
  AddVerdict(result, &page);
  AddChecked(result, &page);
  if (!result.culprits.empty()) {
    const Culprit& first = result.culprits.front();
    AddFirst(result, first, &page);
    // Bits that differ are of no class; what the runs noted of themselves is.
    if (!result.bitwise || !first.classes.empty()) AddWhy(first, &page);
    AddHints(first, &page);
    AddAlso(result, first, &page);
  }
  AddContested(result, &page);
  if (options.verbose) AddDiverged(result, &page);
  AddClean(result, &page);
  AddNotes(result, options.verbose, &page);
  AddNext(result, &page);
  return page.Take();
}

}  // namespace ttrace
