/* What the test programs need of Linux. A part of check.h. */
#ifndef CHECK_LINUX_H
#define CHECK_LINUX_H

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef POLLRDHUP
#define POLLRDHUP 0x2000 /* an addition of Linux, which the C library declares only when asked */
#endif

/* The reference is this library, as a whole. */
#define HAS_NOTIFICATIONS 1

/* This library sets the codes after failures of socket calls. */
#define HAS_SOCKET_CALLS 1

/* An edge that was not drained is reported once. */
#define HAS_EDGES 1

/* A thread that is alone takes all that fits. */
#define TAKES_ALL 1

/* A port finds out that a thread sleeps. */
#define SEES_SLEEP 1

/* There is a mode in which nothing is remembered of a number, and hints spare questions in the other one. */
#define HAS_CHECKED_MODE 1

/* Distinguishes a socket from one that was removed and closed unseen, before the last packet of
 * that is taken. */
#define KNOWS_WHAT_WAS_REMOVED 1

/* Distinguishes a socket from a former one with its number that a duplicate keeps alive. */
#define KNOWS_WHAT_IS_KEPT_ALIVE 1

/* Whether it is Wine, under which a claim may be left out. */
static inline int is_wine(void)
{
    return 0;
}
#define NOT_ON_WINE(cause)
#define UNLESS_WINE(cause)

/* Ends the program after that many seconds. */
static inline void end_if_stuck(unsigned seconds)
{
    alarm(seconds);
}

/* Waits until no other thread of this process runs. */
static inline void until_the_others_sleep(void)
{
    int looks = 0, sleeping = 0;
    while (sleeping < 3) {
        DIR *threads = opendir("/proc/self/task");
        const struct dirent *thread;
        CHECK(threads != NULL && looks++ < SOON);
        sleeping++;
        while ((thread = readdir(threads)) != NULL) {
            char path[sizeof thread->d_name + 32], stat[512];
            const char *state;
            FILE *file;
            if (atol(thread->d_name) <= 0 || atol(thread->d_name) == syscall(SYS_gettid))
                continue;
            snprintf(path, sizeof path, "/proc/self/task/%s/stat", thread->d_name);
            file = fopen(path, "r");
            if (file == NULL) /* it has just ended */
                continue;
            stat[fread(stat, 1, sizeof stat - 1, file)] = 0;
            CHECK_IS(fclose(file), 0);
            state = strrchr(stat, ')');
            if (state != NULL && state[1] == ' ' && state[2] == 'R')
                sleeping = 0;
        }
        CHECK_IS(closedir(threads), 0);
        usleep(1000);
    }
}

/* fork, where no other thread runs: AddressSanitizer, unlike the C library, does not hold the locks of its allocator
 * over a fork, and what another thread has locked then stays locked in the child. A child that is stuck ends; its
 * parent's alarm is not its own. */
static inline pid_t fork_at_rest(void)
{
    pid_t child;
    until_the_others_sleep();
    child = fork();
    CHECK(child >= 0);
    if (child == 0)
        alarm(STUCK);
    return child;
}

/* A datagram socket that was not created by the library. */
static inline SOCKET unseen_socket(void)
{
    SOCKET s = (SOCKET)syscall(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    CHECK(s != INVALID_SOCKET);
    return s;
}

/* Closes it without notifying the library. */
static inline void close_unseen(SOCKET s)
{
    CHECK_IS(close((int)s), 0);
}

/* Another socket with the same number. The library is not notified of either call. */
static inline SOCKET another(SOCKET s)
{
    SOCKET next;
    close_unseen(s);
    next = unseen_socket();
    if (next != s) {
        /* A thread of the library has just ended, or a port, and a lower number was free. */
        CHECK_IS(fcntl((int)next, F_DUPFD, (int)s), s);
        CHECK_IS(close((int)next), 0);
    }
    return s;
}

/* Waits until the kernel reports this of the socket, without the port. */
static inline void until(SOCKET s, int condition)
{
    cp_system_pollfd asked;
    asked.fd = (int)s;
    asked.events = (short)condition;
    do {
        asked.revents = 0;
        CHECK_IS(poll(&asked, 1, SOON), 1);
    } while ((asked.revents & condition) != condition);
}

/* Whether a program that is started gets the socket. */
static inline int is_inherited(SOCKET s)
{
    int flags = fcntl((int)s, F_GETFD);
    CHECK(flags != -1);
    return !(flags & FD_CLOEXEC);
}

/* Whether calls on the socket return immediately. */
static inline int is_nonblocking(SOCKET s)
{
    int flags = fcntl((int)s, F_GETFL);
    CHECK(flags != -1);
    return (flags & O_NONBLOCK) != 0;
}

/* Another number of the same socket. */
static inline SOCKET duplicate(SOCKET s)
{
    return (SOCKET)dup((int)s);
}

/* Open descriptors that are not sockets. */
static inline void open_file_and_pipe(uintptr_t *file, uintptr_t ends[2])
{
    int pipes[2], opened = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK(opened >= 0);
    CHECK_IS(pipe(pipes), 0);
    *file = (uintptr_t)opened;
    ends[0] = (uintptr_t)pipes[0];
    ends[1] = (uintptr_t)pipes[1];
}

static inline void close_file_and_pipe(uintptr_t file, const uintptr_t ends[2])
{
    CHECK_IS(close((int)ends[0]), 0);
    CHECK_IS(close((int)ends[1]), 0);
    CHECK_IS(close((int)file), 0);
}

/* A stream that is not connected, and a datagram socket that is bound. */
static inline void sockets_of_another_family(SOCKET *stream, SOCKET *datagrams)
{
    struct sockaddr_un nameless;
    memset(&nameless, 0, sizeof nameless);
    nameless.sun_family = AF_UNIX;
    *stream = socket(AF_UNIX, SOCK_STREAM, 0);
    *datagrams = socket(AF_UNIX, SOCK_DGRAM, 0);
    /* With only sizeof(sa_family_t) of name, Linux binds it to an abstract name that it chooses. */
    CHECK_IS(bind(*datagrams, (struct sockaddr *)&nameless, sizeof nameless.sun_family), 0);
}

/* The most memory that the program has had so far, in KiB. */
static inline long peak_memory(void)
{
    struct rusage usage;
    CHECK_IS(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

#endif
