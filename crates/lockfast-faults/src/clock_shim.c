/* Steps the wall clock of the program it is preloaded into. The file that LOCKFAST_CLOCK_OFFSET
 * names holds two numbers of 8 bytes, by how many microseconds the clock is ahead and by how many
 * it is behind, so a test can change it at any time; two, because half a negative number, read
 * while it is written, could be anything. Monotonic clocks are left alone. System calls are made
 * directly, because looking up the C library's functions allocates, and an allocator may ask for
 * the time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *ahead_behind_us;

__attribute__((constructor)) static void open_offset(void) {
    const char *path = getenv("LOCKFAST_CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, 16, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) abort(); /* a test without its clock would prove nothing */
    ahead_behind_us = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int failed = (int)syscall(SYS_clock_gettime, clock, out);
    if (failed || !ahead_behind_us || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t us = ahead_behind_us[0] - ahead_behind_us[1];
    int64_t ns = out->tv_nsec + us % 1000000 * 1000;
    int64_t carry = ns < 0 ? -1 : ns / 1000000000;
    out->tv_sec += us / 1000000 + carry;
    out->tv_nsec = ns - carry * 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
