/* Makes every flush to disk take 2 ms longer, as on a disk that is far away.
 *
 * Loaded with LD_PRELOAD into Postgres, or into Keepsake for SQLite.
 * A Go program (SeaweedFS) does not call the C library, and is not slowed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <time.h>

static const long ADDED_NANOSECONDS = 2000000;

static int flush(const char *name, int file) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ADDED_NANOSECONDS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec += 1;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(file);
}

int fsync(int file) { return flush("fsync", file); }

int fdatasync(int file) { return flush("fdatasync", file); }
