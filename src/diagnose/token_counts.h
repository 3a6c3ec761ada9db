// How many tokens of each micro-batch count in the loss, where recorded.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_TOKEN_COUNTS_H_
#define TTRACE_SRC_DIAGNOSE_TOKEN_COUNTS_H_

#include <map>
#include <string>

#include "src/diagnose/evidence.h"

namespace ttrace {

// Micro-batch -> tokens, of the candidate (or else the reference): the `tokens`
// of the loss function, summed over ranks that hold parts. Empty if they were
// not recorded.
std::map<int, double> TokenCounts(const Evidence& evidence);

// Explains factors by micro-batch with these counts, or returns "". By micro-
// batches of t_j tokens, alpha_j x t_j is one number if each micro-batch is
// divided by its own count where the reference divides by a common one, and
// alpha_j / t_j is if the reverse holds. One number: within `tolerance`.
std::string ExplainByTokens(const std::map<int, double>& alpha,
                            const std::map<int, double>& tokens,
                            double tolerance);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_TOKEN_COUNTS_H_
