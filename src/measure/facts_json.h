// Facts as one line of JSON, to be merged and judged where no bytes are.
//
// Doubles come back bit for bit, NaN and infinities included. Unknown keys are
// ignored, missing ones are an error.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_MEASURE_FACTS_JSON_H_
#define TTRACE_SRC_MEASURE_FACTS_JSON_H_

#include <string>
#include <string_view>

#include "src/measure/facts.h"
#include "ttrace/status.h"

namespace ttrace {

// Without a newline.
std::string EncodeFacts(const TensorFacts& facts);

// Fails with kCorrupt for what EncodeFacts cannot have written; the message
// names the field.
Result<TensorFacts> DecodeFacts(std::string_view line);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_FACTS_JSON_H_
