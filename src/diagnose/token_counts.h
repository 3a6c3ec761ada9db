// How many tokens of each micro-batch count in the loss, where recorded.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_TOKEN_COUNTS_H_
#define TTRACE_SRC_DIAGNOSE_TOKEN_COUNTS_H_

#include <map>
#include <string>

#include "src/diagnose/evidence.h"

namespace ttrace {

// Micro-batch -> the value of a scalar that is a sum over micro-batches and
// ranks (a loss, a token count). Empty if one of them cannot be read.
std::map<int, double> ByMicroBatch(const TensorPieces& scalar);

// Micro-batch -> tokens, of the reference (or else the candidate): the `tokens`
// of the loss function, summed over ranks that hold parts. Empty if they were
// not recorded.
std::map<int, double> TokenCounts(const Evidence& evidence);

// Explains factors by micro-batch with these counts, or returns "". By micro-
// batches of t_j tokens, alpha_j x t_j is one number if each micro-batch is
// divided by its own count where the reference divides by a common one, and
// alpha_j / t_j is if the reverse holds. One number: within `tolerance`.
// Factors that are all one number have nothing to do with counts.
std::string ExplainByTokens(const std::map<int, double>& alpha,
                            const std::map<int, double>& tokens,
                            double tolerance);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_TOKEN_COUNTS_H_
