// Every constant of the diagnosis, with its reason; docs/diagnosis.md says more
// of some.

#ifndef TTRACE_SRC_DIAGNOSE_CONSTANTS_H_
#define TTRACE_SRC_DIAGNOSE_CONSTANTS_H_

#include <cstddef>
#include <cstdint>

namespace ttrace {

// What differs and what equals.

// A part, slice or element is right within this many bounds: of errors whose
// mean square is bound^2, by Markov's inequality, fewer than 1 in 16 is larger.
inline constexpr double kSlack = 4;
// ... and equals another at most within this: random slices are sqrt(2) apart.
inline constexpr double kWidestMatch = 0.25;
// What equals another is closer to it than to its own by this much.
inline constexpr double kSeparation = 4;
// Statistics are summed in fp32 lanes, with a relative error of 1e-7: they
// resolve this.
inline constexpr double kStatisticsResolve = 1e-6;
// Beyond it a number is a product of sizes of the run by chance.
inline constexpr double kNamedWithin = 0.01;
// Factors of culprits that are one fault agree within this.
inline constexpr double kSameFactor = 0.01;
// Weights of a fit that are whole are so within this, whatever their
// uncertainty: what is added up has a rounding of its own.
inline constexpr double kWholeWithin = 1e-3;
// A weight that is less certain does not tell 0 from 1 from 2.
inline constexpr double kMostUncertain = 0.25;

// When enough is explained.

// Of what is wrong. The rest is marginal, or comes from outside of what was
// looked at.
inline constexpr double kMostOfTheWrong = 0.9;
// What a rule says of wrong parts holds by chance less often than 2^-this.
inline constexpr double kFewestBits = 64;
// Two random slices agree less often than 2^-this, or are not compared: 8
// values at 1/4, one at 1e-5.
inline constexpr double kFewestBitsOfSlice = 16;
// A sum of rows that a token holds, among all pairs of rows, likewise.
inline constexpr double kFewestBitsOfSum = 32;
// Zeros: fewer may be a coincidence of a mask.
inline constexpr size_t kFewestZeros = 8;
// Elements that one number is fitted to: a few fit one by chance.
inline constexpr size_t kFewestFitted = 16;
// Elements of a part: fewer are always close to a multiple of the reference's.
inline constexpr int64_t kFewestOfPart = 8;
// ... and of a tensor that is looked for among all of its shape.
inline constexpr int64_t kFewestOfTensor = 32;
// Elements of a slice that may be matched: t^8 < 2^-16 for t = kWidestMatch.
inline constexpr int64_t kNarrowestSlice = 8;
// Of the square of an error that rounding explains, what is left: half of its
// size. A random direction among several hundred scales explains less than a
// fifth of 64 values.
inline constexpr double kUnexplainedByRounding = 0.25;
inline constexpr int64_t kFewestRounded = 64;  // values, for the same reason
// Values on a grid of p bits among ones that are not: 32 of them by chance have
// a probability of 2^-32 or less, whatever the grid.
inline constexpr int64_t kFewestOnGrid = 32;
// Of a leftover: some of any error lies along another gradient, because
// gradients are alike. The square of the rest, of that of the error.
inline constexpr double kMostRest = 1e-2;
// A loss has one number: parts have one factor if these scatter by far less
// than it is away from 1.
inline constexpr double kMostScatter = 0.1;
// Of errors that are independent in two runs the difference is sqrt(2) of one;
// of an error that is the same in both it is nothing. In between:
inline constexpr double kIrreproducible = 0.5;
// <c,r>/<c,c> of a lost term is 1: this separates it from half a value (2) and
// from a stranger (0). Real gradients are somewhat alike, so 1 is not met.
inline constexpr double kTermWithin = 0.25;
// <c,r>/<r,r> of one below this says that c has nothing of r; above one minus
// this, that it has all.
inline constexpr double kLeastOfTerm = 0.02;
// A row of a lookup that is further off than a tenth of its norm is wrong by
// more than noise. Of the square:
inline constexpr double kWrongRow = 0.01;
// A table may be of another precision than what is looked up in it.
inline constexpr double kTableWithin = 1e-3;
// A tensor of flags or small integers lies on every grid: where half of the
// reference's values do, the grid says nothing.
inline constexpr double kReferenceOnGrid = 0.5;
// Magnitudes of an 8-bit code; a table of few values has no 16 times as many.
inline constexpr int64_t kCodes = 128;
inline constexpr int64_t kMoreThanCodes = 16;

// How much is looked at: memory and time, not evidence.

// Of the culprit's tensor, spread over the whole of it.
inline constexpr int64_t kSampledElements = 1 << 18;
// At once: of one matching, of a table, of a parameter.
inline constexpr int64_t kInMemory = 1 << 20;
inline constexpr int64_t kGlance = 256;  // rules out all but the right tensor
inline constexpr int64_t kMostTensors = 20'000;  // of the same shape
inline constexpr int64_t kWidestSlice = 1024;    // tells slices apart
inline constexpr int64_t kLongestRow = 4096;     // of the last dimension
// Of the terms of a sum: any fault covers their elements evenly.
inline constexpr int64_t kTermElements = 1 << 16;
inline constexpr size_t kMostTerms = 64;    // ranks
inline constexpr size_t kMostMeshDims = 4;  // of which all subsets are summed

// Rows that a router sent to experts, of all of them; and where sums of them
// are searched, tokens that are looked at and rows in a sum: pairs, not more.
inline constexpr int64_t kMostRoutedRows = 1 << 17;
inline constexpr size_t kMostSummedRows = 1 << 14;
inline constexpr int64_t kWidestSummand = 64;
inline constexpr size_t kMostTokensLookedAt = 256;
inline constexpr size_t kMostSummands = 2;

// A flat buffer: runs of consecutive elements of the candidate's piece, so many
// of which are found elsewhere. A random run agrees within 1/4 with a
// probability of about 4^-16.
inline constexpr int64_t kRunLength = 16;
inline constexpr size_t kRunsLookedFor = 5;
inline constexpr size_t kFewestRuns = 3;
inline constexpr int64_t kMostSearched = 1 << 26;

// A lookup: wrong rows, elements that are looked through for them, and how many
// iterations ago the table may have been recorded.
inline constexpr int64_t kTableRows = 8;
inline constexpr int64_t kNarrowestTable = 8;
inline constexpr int64_t kMostLookedThrough = 1 << 24;
inline constexpr int kOldestTable = 1000;

// Terms of micro-batches: rows and columns of the gradient, and parameters that
// are tried: the culprit's own may be of a module that is not linear.
inline constexpr int64_t kTermRows = 32;
inline constexpr int64_t kTermColumns = 64;
inline constexpr int64_t kMostTokensOfTerms = 1 << 16;
inline constexpr size_t kMostMicroBatches = 32;
inline constexpr int kMostWitnesses = 8;

// Operands that were rounded: a corner of the output, and multiplications of
// one product; a fit makes some hundred of them.
inline constexpr int64_t kCornerTokens = 32;
inline constexpr int64_t kCornerColumns = 32;
inline constexpr int64_t kMostMultiplications = 1 << 19;
// Scales tried: another by a part d moves a value by d x 2^(bits - 1) steps or
// a little more. At d = 1/64 / 2 that is a tenth of a step for 4 bits, where
// errors are alike still. Then each time in a quarter of the step: to 4e-5,
// where one in a thousand values is rounded to another side.
inline constexpr int kCoarseScales = 64;
inline constexpr int kZooms = 4;
// An error of half a step in one operand is 0.39 x 2^-bits of its size in root
// mean square if all mantissas are alike, at most 0.58; two operands have
// sqrt(2) of it. Twice as much either way is left for how values are spread.
inline constexpr double kLeastDeviation = 0.2;
inline constexpr double kMostDeviation = 1.6;

// Other steps. Fewer wrong elements fit many a hypothesis.
inline constexpr int64_t kFewestOfStep = 4;
inline constexpr int64_t kFewestFittedOfStep = 16;  // with a free number
inline constexpr double kMostOfStep = 0.99;
// A fitted number is itself off by what rounding does to the elements that it
// is fitted to, at most their bound: twice the bound covers both.
inline constexpr double kFittedLimit = 2;

// What is said.

inline constexpr size_t kMostClasses = 3;  // of one culprit
inline constexpr int kMostSizes = 3;       // in the name of a factor
inline constexpr size_t kNamesOfFactor = 3;
inline constexpr size_t kMostExamples = 5;  // of affected tensors

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_CONSTANTS_H_
