// Phrases that more than one rule uses.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_WORDS_H_
#define TTRACE_SRC_DIAGNOSE_WORDS_H_

#include <string>
#include <vector>

#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/evidence.h"

namespace ttrace {

// "; its attribute sequence_parallel is False where the topology says True
// (ranks 0, 1)", or "" if capture noted nothing of that name about the culprit
// or what is affected with it.
std::string AttributeWords(const Evidence& evidence, const std::string& name);

// "dp x tp"
std::string DimWords(const std::vector<std::string>& dims);

// "; seen in the sample of 256 elements that was kept", or "" where the values
// were.
std::string SampleWords(const SampledPair& pair);
std::string SampleWords(size_t elements);

// ", and the factor equals tp = 2 (or ...)": the products of sizes of the run
// that |factor| equals within the relative `tolerance`, but at least 1e-6 (what
// statistics from fp32 lanes resolve) and at most 1 % (beyond which a number
// has a name by chance). "" if none does.
std::string FactorNameWords(const Evidence& evidence, double factor,
                            double tolerance);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_WORDS_H_
