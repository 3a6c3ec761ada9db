// A result for other programs. Pure functions of what a result.json says; equal
// results give equal bytes. Names come from files that anyone may have written:
// each renderer makes them harmless in its own format.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_EXPORTS_EXPORTS_H_
#define TTRACE_SRC_REPORT_EXPORTS_EXPORTS_H_

#include <string>

#include "src/report/result_file.h"
#include "src/report/timeline/timeline.h"

namespace ttrace {

// JUnit XML, as Jenkins, GitLab and others read it. One suite `verdict` of one
// case, which fails where the runs diverged and is an error where it could not
// be decided; then a suite for each role, with a case for each layer group: a
// failure where a tensor of it is out of bounds, with the culprit's text if a
// culprit is in it, skipped where nothing of it could be judged.
std::string RenderJunit(const ResultFile& result);

// SARIF 2.1.0, as code scanners are read: a result for each culprit, at the
// file and line to open first, with its class as the rule; of an inconclusive
// check one that says so. Files below `root` are relative to it, as services
// that show them beside the source want them.
std::string RenderSarif(const ResultFile& result, const std::string& root);

// A few lines of GitHub's Markdown, for a pull request or a job's summary.
std::string RenderMarkdown(const ResultFile& result);

// A trace for ui.perfetto.dev and its trace_processor (Perfetto's own binary
// format): the ranks' legs with their modules in recorded order and time,
// collectives as flows between ranks, findings where they were recorded.
std::string RenderPerfetto(const Timeline& timeline, const ResultFile& result);

// The group of modules that a name belongs to: all up to its first number
// ("decoder.layers.3"), else its first part.
std::string LayerGroup(const std::string& fqn);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_EXPORTS_EXPORTS_H_
