/* A library to preload into a server: it notes how much of each file has reached the disk.
 *
 * SEGMENTED_PRELOAD_SYNC_LOG names a file. After every fsync and fdatasync that succeeded it gets a line: the inode of
 * the synced file, and the size that the file had before the call. Bytes beyond it may be lost when the power fails.
 * The line is written before the server learns that the sync is done, so the log is never behind an acknowledgement.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int sync_log = -1;

__attribute__((constructor)) static void open_log(void) {
    const char *path = getenv("SEGMENTED_PRELOAD_SYNC_LOG");
    if (path)
        sync_log = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int synced(long call, int file) {
    struct stat before;
    int is_known = sync_log >= 0 && !fstat(file, &before) && S_ISREG(before.st_mode);
    int failed = (int)syscall(call, file);
    if (!failed && is_known) {
        char line[64];
        int length = snprintf(line, sizeof line, "%llu %lld\n", (unsigned long long)before.st_ino, (long long)before.st_size);
        if (write(sync_log, line, (size_t)length) != length)
            abort();
    }
    return failed;
}

int fsync(int file) { return synced(SYS_fsync, file); }

int fdatasync(int file) { return synced(SYS_fdatasync, file); }
