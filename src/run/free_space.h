// What a file system has left.
//
// Thread safety: reads the file system only.

#ifndef TTRACE_SRC_RUN_FREE_SPACE_H_
#define TTRACE_SRC_RUN_FREE_SPACE_H_

#include <optional>
#include <string>

namespace ttrace {

struct FileSystemSpace {
  double free = 0;  // bytes that this user may write
  double all = 0;   // bytes
};

// Of the file system that holds `folder`; nullopt if it cannot be asked.
std::optional<FileSystemSpace> SpaceOf(const std::string& folder);

// "; its file system has 1.2 MB left", if that is too little to go on, else "".
std::string FullDiskWords(const std::string& folder);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_FREE_SPACE_H_
