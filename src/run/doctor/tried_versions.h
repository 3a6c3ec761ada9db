// The versions with which this one of ttrace was run. What is not among them
// may well work: capture asks each library for what it needs, and says what is
// missing (docs/versions.md).
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_RUN_DOCTOR_TRIED_VERSIONS_H_
#define TTRACE_SRC_RUN_DOCTOR_TRIED_VERSIONS_H_

#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

struct TriedPackage {
  std::string_view name;  // as pip knows it
  std::vector<std::string_view> versions;
  // Why a run that uses it is not judged; empty: it is.
  std::string_view refused = {};
};

// torch first. A test holds it against the requirements of the tests.
const std::vector<TriedPackage>& TriedPackages();

// Whether `installed` is one of them, up to the local part of a version
// ("2.13.0+cpu" is 2.13.0).
bool WasTried(const TriedPackage& package, std::string_view installed);

// "0.15.3 and 0.16.1".
std::string VersionWords(const TriedPackage& package);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_DOCTOR_TRIED_VERSIONS_H_
