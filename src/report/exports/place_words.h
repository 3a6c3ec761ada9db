// What is said of a culprit, in lines that hold no character which a reader
// could not see.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_EXPORTS_PLACE_WORDS_H_
#define TTRACE_SRC_REPORT_EXPORTS_PLACE_WORDS_H_

#include <string>
#include <vector>

#include "src/report/result_file.h"

namespace ttrace {

std::string PlaceName(const std::string& fqn);  // of "" the model itself

// "grad_reduced, backward, communication, iteration 0, rank 1".
std::string PlaceTitle(const ResultFile::Place& place);

// Both: "fc.weight: grad_reduced, ...".
std::string PlaceHeading(const ResultFile::Place& place);

// How it was found and why, a sentence a line; never empty.
std::vector<std::string> PlaceLines(const ResultFile::Place& place);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_EXPORTS_PLACE_WORDS_H_
