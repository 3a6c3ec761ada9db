// Says to other ttrace processes that a folder is being written.
//
// The lock is flock(2) on the folder itself: nothing is added to what a folder
// holds, and the kernel takes the lock back however its holder dies. On a file
// system without it (some network ones) nothing is locked and nothing fails.

#ifndef TTRACE_SRC_RUN_FOLDER_LOCK_H_
#define TTRACE_SRC_RUN_FOLDER_LOCK_H_

#include <string>
#include <utility>

#include "ttrace/status.h"

namespace ttrace {

class FolderLock {
 public:
  // Fails with kInvalidArgument if another holder has the folder.
  static Result<FolderLock> Take(const std::string& folder);

  FolderLock(FolderLock&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FolderLock();

  bool held() const { return descriptor_ >= 0; }

 private:
  explicit FolderLock(int descriptor) : descriptor_(descriptor) {}

  int descriptor_ = -1;  // -1: this file system knows no locks
};

// Whether a ttrace process holds the folder now, or one cannot tell.
bool MayBeLocked(const std::string& folder);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_FOLDER_LOCK_H_
