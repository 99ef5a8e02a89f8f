/* No signal ends a wait. Row 7. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include "check.h"

static long long milliseconds(void)
{
    struct timespec now;
    CHECK_IS(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static volatile sig_atomic_t alarms;

/* Signals are few: on a machine that has no time for them, each would come before the next step is done. */
static void set_alarm(void)
{
    struct itimerval soon = {{0, 0}, {0, 7000}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

static void count_alarm(int number)
{
    (void)number;
    if (++alarms % 5 != 0) {
        set_alarm();
    }
}

/* Row 7. */
static void no_signal_ends_a_wait(void)
{
    enum { TIME = 60 };
    HANDLE port = new_port(0);
    OVERLAPPED_ENTRY entry;
    OVERLAPPED *overlapped;
    ULONG_PTR key;
    DWORD bytes;
    ULONG removed;
    UINT32 received;
    long long began;
    int way;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = count_alarm; /* without SA_RESTART: the kernel's waits are interrupted */
    alarm(0);                        /* the same clock */
    CHECK_IS(sigaction(SIGALRM, &action, NULL), 0);
    for (way = 0; way < 3; way++) {
        int before = alarms;
        began = milliseconds();
        set_alarm();
        if (way == 0) {
            CHECK_IS(ProcessSocketNotifications(port, 0, NULL, TIME, 1, &entry, &received), WAIT_TIMEOUT);
        } else if (way == 1) {
            CHECK_FALSE(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, TIME), WAIT_TIMEOUT);
        } else {
            CHECK_FALSE(GetQueuedCompletionStatusEx(port, &entry, 1, &removed, TIME, FALSE), WAIT_TIMEOUT);
        }
        CHECK(milliseconds() - began >= TIME);
        while (alarms < before + 5) { /* the first ones came in the wait at the latest */
            CHECK(alarms > before);
            usleep(1000);
        }
    }
    signal(SIGALRM, SIG_DFL);
    alarm(STUCK);
    CHECK_IS(CloseHandle(port), TRUE);
}

int main(void)
{
    start();
    no_signal_ends_a_wait();
    return finish();
}
