/* Posted packets, the two other calls that take packets, and the concurrency value. Rows 33 to 40. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <pthread.h>
#include <time.h>

#include "check.h"

/* Row 33: three words, as they are, in order. */
static void what_is_posted_comes_out_as_it_is(void)
{
    static const uintptr_t keys[] = {0, 1, 0xFFFFFFFFu, UINTPTR_MAX, 0x8000000000000000u};
    static const DWORD counts[] = {0, 0xFFFFFFFFu, 0x80u, 0x80000000u, 7};
    static const uintptr_t operations[] = {0, 1, UINTPTR_MAX, 0x7FFFFFFFFFFFFFFFu, 0};
    HANDLE port = new_port(0);
    OVERLAPPED_ENTRY entries[5];
    OVERLAPPED *overlapped;
    ULONG_PTR key;
    DWORD bytes;
    ULONG removed = 0, taken;
    int i;
    for (i = 0; i < 5; i++) {
        CHECK_IS(PostQueuedCompletionStatus(port, counts[i], keys[i], (OVERLAPPED *)operations[i]), TRUE);
    }
    for (i = 0; i < 5; i++) {
        CHECK_IS(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, SOON), TRUE);
        CHECK_IS(bytes, counts[i]);
        CHECK_IS(key, keys[i]);
        CHECK_IS((uintptr_t)overlapped, operations[i]);
    }
    for (i = 0; i < 5; i++) {
        CHECK_IS(PostQueuedCompletionStatus(port, counts[i], keys[i], (OVERLAPPED *)operations[i]), TRUE);
    }
    for (taken = 0; taken < 5; taken += removed) {
        CHECK_IS(GetQueuedCompletionStatusEx(port, entries + taken, 5 - taken, &removed, SOON, TRUE), TRUE);
        CHECK(removed >= 1);
    }
    CHECK_IS(taken, 5);
    for (i = 0; i < 5; i++) {
        CHECK_IS(entries[i].dwNumberOfBytesTransferred, counts[i]);
        CHECK_IS(entries[i].lpCompletionKey, keys[i]);
        CHECK_IS((uintptr_t)entries[i].lpOverlapped, operations[i]);
    }
    CHECK_IS(CloseHandle(port), TRUE);
}

/* Row 40. */
static void a_time_out_says_so(void)
{
    HANDLE port = new_port(0);
    OVERLAPPED_ENTRY entry;
    OVERLAPPED *overlapped = (OVERLAPPED *)&entry;
    ULONG_PTR key = 1;
    DWORD bytes = 1;
    ULONG removed = UNTOUCHED;
    CHECK_FALSE(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, A_WHILE), WAIT_TIMEOUT);
    CHECK(overlapped == NULL);
    overlapped = (OVERLAPPED *)&entry;
    CHECK_FALSE(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, 0), WAIT_TIMEOUT);
    CHECK(overlapped == NULL);
    CHECK_FALSE(GetQueuedCompletionStatusEx(port, &entry, 1, &removed, A_WHILE, FALSE), WAIT_TIMEOUT);
#if HAS_NOTIFICATIONS /* where Wine's own ports write 1 */
    CHECK_IS(removed, 0);
#endif
    CHECK_FALSE(GetQueuedCompletionStatusEx(port, &entry, 1, &removed, 0, TRUE), WAIT_TIMEOUT);
    CHECK_IS(CloseHandle(port), TRUE);
}

static void room_for_nothing_is_a_mistake(void)
{
    HANDLE port = new_port(0);
    OVERLAPPED_ENTRY entry;
    OVERLAPPED *overlapped;
    ULONG_PTR key;
    DWORD bytes;
    ULONG removed;
    if (!HAS_NOTIFICATIONS) {
        NOT_ON_WINE("room for no packet is no mistake")
    }
    CHECK_IS(PostQueuedCompletionStatus(port, 1, 2, NULL), TRUE);
    CHECK_FALSE(GetQueuedCompletionStatusEx(port, &entry, 0, &removed, 0, FALSE), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(GetQueuedCompletionStatusEx(port, NULL, 1, &removed, 0, FALSE), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(GetQueuedCompletionStatusEx(port, &entry, 1, NULL, 0, FALSE), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(GetQueuedCompletionStatus(port, NULL, &key, &overlapped, 0), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(GetQueuedCompletionStatus(port, &bytes, NULL, &overlapped, 0), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(GetQueuedCompletionStatus(port, &bytes, &key, NULL, 0), ERROR_INVALID_PARAMETER);
    CHECK_IS(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, 0), TRUE); /* nothing was lost */
    CHECK_IS(key, 2);
    CHECK_IS(CloseHandle(port), TRUE);
}

/* Any number of threads post, any number take: each packet comes to one, none is lost. */
enum { THREADS = 4, EACH = 5000 };

typedef struct {
    HANDLE port;
    uintptr_t first;
    unsigned long long sum, count;
} WORKER;

static int each(void)
{
    return is_slow() ? EACH / 20 : EACH;
}

static void *posts(void *argument)
{
    WORKER *worker = (WORKER *)argument;
    int i;
    for (i = 0; i < each(); i++) {
        CHECK_IS(PostQueuedCompletionStatus(worker->port, 1, worker->first + (uintptr_t)i, NULL), TRUE);
    }
    return NULL;
}

static void *takes(void *argument)
{
    WORKER *worker = (WORKER *)argument;
    OVERLAPPED_ENTRY entries[7];
    ULONG removed, i;
    for (;;) {
        CHECK_IS(GetQueuedCompletionStatusEx(worker->port, entries, 7, &removed, SOON, FALSE), TRUE);
        CHECK(removed >= 1 && removed <= 7);
        for (i = 0; i < removed; i++) {
            if (entries[i].dwNumberOfBytesTransferred == 0) {
                ULONG rest;
                for (rest = i; rest < removed; rest++) { /* all that is left is the sign to stop, for others */
                    CHECK_IS(entries[rest].dwNumberOfBytesTransferred, 0);
                    CHECK_IS(PostQueuedCompletionStatus(worker->port, 0, 0, NULL), TRUE);
                }
                return NULL;
            }
            worker->sum += entries[i].lpCompletionKey;
            worker->count++;
        }
    }
}

static void each_packet_goes_to_one_thread(void)
{
    HANDLE port = new_port(2);
    WORKER posters[THREADS], takers[THREADS];
    pthread_t posting[THREADS], taking[THREADS];
    unsigned long long sum = 0, count = 0, expected = 0;
    int i;
    for (i = 0; i < THREADS; i++) {
        memset(&posters[i], 0, sizeof posters[i]);
        memset(&takers[i], 0, sizeof takers[i]);
        posters[i].port = takers[i].port = port;
        posters[i].first = (uintptr_t)i * 1000000 + 1;
        CHECK_IS(pthread_create(&taking[i], NULL, takes, &takers[i]), 0);
        CHECK_IS(pthread_create(&posting[i], NULL, posts, &posters[i]), 0);
    }
    for (i = 0; i < THREADS; i++) {
        int k;
        CHECK_IS(pthread_join(posting[i], NULL), 0);
        for (k = 0; k < each(); k++) {
            expected += posters[i].first + (uintptr_t)k;
        }
    }
    CHECK_IS(PostQueuedCompletionStatus(port, 0, 0, NULL), TRUE); /* after all others */
    for (i = 0; i < THREADS; i++) {
        CHECK_IS(pthread_join(taking[i], NULL), 0);
        sum += takers[i].sum;
        count += takers[i].count;
    }
    CHECK_IS(count, THREADS * each());
    CHECK_IS(sum, expected);
    CHECK_IS(CloseHandle(port), TRUE);
}

/* Rows 38 and 39: a thread that spins holds its seat; one that sleeps in the kernel does not. */
typedef struct {
    HANDLE port;
    int has_packet, may_sleep, sleeps_on[2];
} RUNNER;

static void *spins_and_then_sleeps(void *argument)
{
    RUNNER *runner = (RUNNER *)argument;
    unsigned events;
    char byte;
    CHECK_IS(NEXT(runner->port, &events), 1);
    __atomic_store_n(&runner->has_packet, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&runner->may_sleep, __ATOMIC_SEQ_CST)) {
    }
    CHECK_IS(read(runner->sleeps_on[0], &byte, 1), 1);
    return NULL;
}

static void a_running_thread_holds_its_seat_until_it_sleeps(void)
{
    RUNNER runner;
    pthread_t thread;
    memset(&runner, 0, sizeof runner);
    runner.port = new_port(1);
    CHECK_IS(pipe(runner.sleeps_on), 0);
    CHECK_IS(pthread_create(&thread, NULL, spins_and_then_sleeps, &runner), 0);
    CHECK_IS(PostQueuedCompletionStatus(runner.port, 0, 1, NULL), TRUE);
    while (!__atomic_load_n(&runner.has_packet, __ATOMIC_SEQ_CST)) {
        sched_yield();
    }
    CHECK_IS(PostQueuedCompletionStatus(runner.port, 0, 2, NULL), TRUE);
    CHECK(is_silent(runner.port));
    __atomic_store_n(&runner.may_sleep, 1, __ATOMIC_SEQ_CST);
    CHECK_NEXT(runner.port, 2, 0);
    CHECK_IS(write(runner.sleeps_on[1], "x", 1), 1);
    CHECK_IS(pthread_join(thread, NULL), 0);
    CHECK_IS(close(runner.sleeps_on[0]), 0);
    CHECK_IS(close(runner.sleeps_on[1]), 0);
    CHECK_IS(CloseHandle(runner.port), TRUE);
}

/* Row 6: packets returned by a call cannot be taken back from a thread that sleeps, so a call
 * returns fewer where threads do. Four sleeps are enough, each found within 100 ms of the one
 * before, but not within one. On a busy machine they may be found further apart. */
typedef struct {
    HANDLE port;
    int says[2], sleeps_on[2];
} SLEEPER;

static void *takes_one_and_sleeps(void *argument)
{
    SLEEPER *sleeper = (SLEEPER *)argument;
    char byte;
    CHECK_NEXT(sleeper->port, 1, 0);
    CHECK_IS(write(sleeper->says[1], "x", 1), 1);
    CHECK_IS(read(sleeper->sleeps_on[0], &byte, 1), 1);
    return NULL;
}

static void a_call_brings_less_where_threads_sleep(void)
{
    SLEEPER sleeper;
    OVERLAPPED_ENTRY entries[8];
    ULONG removed = 0;
    pthread_t thread;
    int round, i;
    char byte;
    sleeper.port = new_port(1);
    CHECK_IS(pipe(sleeper.says), 0);
    CHECK_IS(pipe(sleeper.sleeps_on), 0);
    for (round = 0; removed != 1; round++) {
        CHECK(round < 1000);
        for (i = 0; i < 8; i++) {
            CHECK_IS(PostQueuedCompletionStatus(sleeper.port, 0, 7, NULL), TRUE);
        }
        for (i = 0; i < 8; i += (int)removed) {
            CHECK_IS(GetQueuedCompletionStatusEx(sleeper.port, entries, 8, &removed, SOON, FALSE), TRUE);
            CHECK(round > 0 || removed == 8);
        }
        CHECK_IS(pthread_create(&thread, NULL, takes_one_and_sleeps, &sleeper), 0);
        CHECK_IS(PostQueuedCompletionStatus(sleeper.port, 0, 1, NULL), TRUE);
        CHECK_IS(read(sleeper.says[0], &byte, 1), 1);
        CHECK_IS(PostQueuedCompletionStatus(sleeper.port, 0, 2, NULL), TRUE);
        CHECK_NEXT(sleeper.port, 2, 0); /* the one seat is free: the other thread was found asleep */
        CHECK_IS(write(sleeper.sleeps_on[1], "x", 1), 1);
        CHECK_IS(pthread_join(thread, NULL), 0);
    }
    for (i = 0; i < 2; i++) {
        CHECK_IS(close(sleeper.says[i]), 0);
        CHECK_IS(close(sleeper.sleeps_on[i]), 0);
    }
    CHECK_IS(CloseHandle(sleeper.port), TRUE);
}

#if HAS_NOTIFICATIONS

#if TAKES_ALL
/* Row 40. */
static void a_thread_that_is_alone_takes_all_that_fits(void)
{
    enum { SOCKETS = 200, ROOM = 256 };
    HANDLE port = new_port(0);
    SOCKET sockets[SOCKETS];
    OVERLAPPED_ENTRY entries[ROOM];
    ULONG removed = 0;
    UINT32 received = 0;
    int way, i;
    for (i = 0; i < SOCKETS; i++) {
        sockets[i] = udp_socket();
    }
    for (way = 0; way < 3; way++) { /* registered, enabled again, and enabled with an edge trigger */
        for (i = 0; i < SOCKETS; i++) {
            unsigned trigger = way == 2 ? EDGE_ONCE : LEVEL_ONCE;
            CHECK_IS(enable(port, sockets[i], (uintptr_t)i, FILTER_OUT, trigger), ERROR_SUCCESS);
        }
        if (way == 1) {
            CHECK_IS(GetQueuedCompletionStatusEx(port, entries, ROOM, &removed, SOON, FALSE), TRUE);
            CHECK_IS(removed, SOCKETS);
        } else {
            CHECK_IS(ProcessSocketNotifications(port, 0, NULL, SOON, ROOM, entries, &received), ERROR_SUCCESS);
            CHECK_IS(received, SOCKETS);
        }
        CHECK(is_silent(port));
    }
    for (i = 0; i < SOCKETS; i++) {
        CHECK_IS(closesocket(sockets[i]), 0);
    }
    CHECK_IS(CloseHandle(port), TRUE);
}
#endif

#endif

int main(void)
{
    start();
#if HAS_NOTIFICATIONS
#if TAKES_ALL
    a_thread_that_is_alone_takes_all_that_fits();
#endif
#endif
    what_is_posted_comes_out_as_it_is();
    a_time_out_says_so();
    room_for_nothing_is_a_mistake();
    each_packet_goes_to_one_thread();
    if (SEES_SLEEP) {
        a_call_brings_less_where_threads_sleep();
    }
    if (SEES_SLEEP && !is_slow()) { /* there one thread runs at a time, so that one that spins looks like one that sleeps */
        a_running_thread_holds_its_seat_until_it_sleeps();
    }
    return finish();
}
