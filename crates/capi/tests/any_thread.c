/* Every function may be called from any thread at any time: threads change, close and remake the same sockets
 * while others wait, post and close the port under them. Nothing may crash, and each result is one that the
 * rules know. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <pthread.h>

#include "check.h"

enum { SOCKETS = 6, CHANGERS = 3, WAITERS = 3, ROUNDS = 4, STEPS = 3000 };

static HANDLE port;
static SOCKET sockets[SOCKETS];
static pthread_mutex_t remaking[SOCKETS];
static int is_closed;

static unsigned chance(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

static int steps(void)
{
    return is_slow() ? STEPS / 30 : STEPS;
}

static void *changes_at_random(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    int i;
    for (i = 0; i < steps(); i++) {
        static const unsigned operations[] = {SOCK_NOTIFY_OP_ENABLE, SOCK_NOTIFY_OP_ENABLE, SOCK_NOTIFY_OP_ENABLE,
                                              SOCK_NOTIFY_OP_DISABLE, SOCK_NOTIFY_OP_REMOVE, SOCK_NOTIFY_OP_NONE};
        static const unsigned triggers[] = {LEVEL_ONCE, LEVEL_ON, EDGE_ONCE, EDGE_ON};
        SOCK_NOTIFY_REGISTRATION changes[2];
        OVERLAPPED_ENTRY entry;
        UINT32 received = 0;
        DWORD outcome;
        int which, k, waits = chance(&seed) % 4 == 0;
        for (k = 0; k < 2; k++) {
            which = (int)(chance(&seed) % SOCKETS);
            changes[k] = change(__atomic_load_n(&sockets[which], __ATOMIC_SEQ_CST), (uintptr_t)which + 1,
                                operations[chance(&seed) % 6], chance(&seed) % 8, triggers[chance(&seed) % 4]);
        }
        outcome = waits ? ProcessSocketNotifications(port, 2, changes, 0, 1, &entry, &received)
                        : ProcessSocketNotifications(port, 2, changes, 0, 0, NULL, NULL);
        if (outcome == ERROR_INVALID_HANDLE) {
            CHECK(__atomic_load_n(&is_closed, __ATOMIC_SEQ_CST));
            CHECK(changes[0].registrationResult == UNTOUCHED && changes[1].registrationResult == UNTOUCHED);
            return NULL;
        }
        CHECK(outcome == ERROR_SUCCESS || outcome == WAIT_TIMEOUT ||
              (outcome == ERROR_ABANDONED_WAIT_0 && __atomic_load_n(&is_closed, __ATOMIC_SEQ_CST)));
        for (k = 0; k < 2; k++) {
            DWORD result = changes[k].registrationResult;
            CHECK(result == ERROR_SUCCESS || result == ERROR_INVALID_PARAMETER || result == ERROR_NOT_FOUND ||
                  result == WSAENOTSOCK || result == ERROR_INVALID_HANDLE);
        }
        if (chance(&seed) % 20 == 0) { /* closes one, and makes another in its place */
            which = (int)(chance(&seed) % SOCKETS);
            CHECK_IS(pthread_mutex_lock(&remaking[which]), 0);
            CHECK_IS(closesocket(sockets[which]), 0);
            __atomic_store_n(&sockets[which], udp_socket(), __ATOMIC_SEQ_CST);
            CHECK_IS(pthread_mutex_unlock(&remaking[which]), 0);
        }
        if (chance(&seed) % 10 == 0) {
            PostQueuedCompletionStatus(port, 0, SOCKETS + 1, NULL);
        }
    }
    return NULL;
}

static void *waits_at_random(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (;;) {
        OVERLAPPED_ENTRY entries[4];
        OVERLAPPED *overlapped;
        ULONG_PTR key = 0;
        ULONG removed = 0;
        UINT32 count = 0, i;
        DWORD bytes, error = ERROR_SUCCESS;
        DWORD wait = chance(&seed) % 3 == 0 ? INFINITE : chance(&seed) % 3;
        switch (chance(&seed) % 3) {
        case 0:
            if (!GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, wait)) {
                error = GetLastError();
            } else {
                count = 1;
                entries[0].lpCompletionKey = key;
            }
            break;
        case 1:
            if (!GetQueuedCompletionStatusEx(port, entries, 4, &removed, wait, FALSE)) {
                error = GetLastError();
            }
            count = removed;
            break;
        default:
            error = ProcessSocketNotifications(port, 0, NULL, wait, 4, entries, &count);
            break;
        }
        if (error == ERROR_ABANDONED_WAIT_0 || error == ERROR_INVALID_HANDLE) {
            CHECK(__atomic_load_n(&is_closed, __ATOMIC_SEQ_CST));
            return NULL;
        }
        CHECK(error == ERROR_SUCCESS || error == WAIT_TIMEOUT);
        CHECK_IS(count == 0, error == WAIT_TIMEOUT);
        for (i = 0; i < count; i++) {
            CHECK(entries[i].lpCompletionKey >= 1 && entries[i].lpCompletionKey <= SOCKETS + 1);
        }
    }
}

int main(void)
{
    int round, i;
    start();
    for (i = 0; i < SOCKETS; i++) {
        sockets[i] = udp_socket();
        CHECK_IS(pthread_mutex_init(&remaking[i], NULL), 0);
    }
    for (round = 0; round < ROUNDS; round++) {
        pthread_t changers[CHANGERS], waiters[WAITERS];
        port = new_port((DWORD)round);
        is_closed = 0;
        for (i = 0; i < WAITERS; i++) {
            CHECK_IS(pthread_create(&waiters[i], NULL, waits_at_random, (void *)(uintptr_t)(round * 10 + i)), 0);
        }
        for (i = 0; i < CHANGERS; i++) {
            CHECK_IS(pthread_create(&changers[i], NULL, changes_at_random, (void *)(uintptr_t)(round * 100 + i)), 0);
        }
        if (round % 2 == 0) { /* in the midst of it */
            usleep(2000);
        } else {
            for (i = 0; i < CHANGERS; i++) {
                CHECK_IS(pthread_join(changers[i], NULL), 0);
            }
        }
        __atomic_store_n(&is_closed, 1, __ATOMIC_SEQ_CST);
        CHECK_IS(CloseHandle(port), TRUE);
        for (i = 0; i < WAITERS; i++) {
            CHECK_IS(pthread_join(waiters[i], NULL), 0);
        }
        for (i = 0; round % 2 == 0 && i < CHANGERS; i++) {
            CHECK_IS(pthread_join(changers[i], NULL), 0);
        }
    }
    for (i = 0; i < SOCKETS; i++) {
        CHECK_IS(closesocket(sockets[i]), 0);
        CHECK_IS(pthread_mutex_destroy(&remaking[i]), 0);
    }
    return finish();
}
