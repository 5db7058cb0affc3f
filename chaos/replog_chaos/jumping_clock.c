/* A wall clock that jumps, for one process: what libc says of the time of day, plus an offset.
 *
 * Put before libc with LD_PRELOAD.  The offset is a signed number of nanoseconds in the eight bytes of the file that
 * REPLOG_CLOCK_OFFSET names.  The file is mapped, so that one write to it is one jump.
 *
 * Monotonic clocks are left alone, as they are when an administrator or NTP steps the clock.  Two things stay the
 * kernel's: the times of files, and waits for an absolute time of day (sem_timedwait and the like).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000LL

static const volatile int64_t *offset_ns;
static int (*libc_clock_gettime)(clockid_t, struct timespec *);

static void give_up(const char *what)
{
    perror(what);
    abort(); /* a clock that silently does not jump would let tests pass */
}

__attribute__((constructor)) static void set_up(void)
{
    const char *path = getenv("REPLOG_CLOCK_OFFSET");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset_ns, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        give_up("REPLOG_CLOCK_OFFSET");
    close(fd);
    *(void **)&libc_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    if (!libc_clock_gettime)
        give_up("clock_gettime");
    offset_ns = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!offset_ns)
        set_up(); /* the constructor of another library asks before ours has run */
    int failed = libc_clock_gettime(clock, now);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t offset = *offset_ns;
    now->tv_sec += offset / SECOND_NS;
    now->tv_nsec += offset % SECOND_NS;
    if (now->tv_nsec < 0) {
        now->tv_sec -= 1;
        now->tv_nsec += SECOND_NS;
    } else if (now->tv_nsec >= SECOND_NS) {
        now->tv_sec += 1;
        now->tv_nsec -= SECOND_NS;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    if (zone)
        memset(zone, 0, sizeof(struct timezone));
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *copy)
{
    struct timespec coarse;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &coarse))
        return (time_t)-1;
    if (copy)
        *copy = coarse.tv_sec;
    return coarse.tv_sec;
}
