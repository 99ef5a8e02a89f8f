/* Ports and their handles: creating, associating, closing, and invalid handles. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

/* CloseHandle closes sockets as well. A small number may be that of a socket which the test has made or inherited. */
static int is_a_socket(HANDLE handle)
{
    int kind;
    socklen_t size = sizeof kind;
    return (uintptr_t)handle < 0x10000 &&
           getsockopt((SOCKET)(uintptr_t)handle, SOL_SOCKET, SO_TYPE, (char *)&kind, &size) == 0;
}

/* Every function that takes a port refuses this one in the same way, and changes nothing. */
static void is_no_port(HANDLE handle)
{
    OVERLAPPED_ENTRY entry;
    SOCK_NOTIFY_REGISTRATION registration;
    SOCKET s = udp_socket();
    OVERLAPPED *overlapped;
    ULONG_PTR key;
    DWORD bytes;
    ULONG removed;
    UINT32 received;

    registration = change(s, 1, SOCK_NOTIFY_OP_ENABLE, FILTER_OUT, LEVEL_ON);
    CHECK_IS(ProcessSocketNotifications(handle, 1, &registration, 0, 0, NULL, NULL), ERROR_INVALID_HANDLE);
    CHECK_IS(registration.registrationResult, UNTOUCHED);
    CHECK_IS(ProcessSocketNotifications(handle, 0, NULL, 0, 1, &entry, &received), ERROR_INVALID_HANDLE);
    CHECK_FALSE(GetQueuedCompletionStatus(handle, &bytes, &key, &overlapped, 0), ERROR_INVALID_HANDLE);
    CHECK(overlapped == NULL);
    CHECK_FALSE(GetQueuedCompletionStatusEx(handle, &entry, 1, &removed, 0, FALSE), ERROR_INVALID_HANDLE);
    CHECK_FALSE(PostQueuedCompletionStatus(handle, 1, 2, NULL), ERROR_INVALID_HANDLE);
    if (!is_a_socket(handle))
        CHECK_FALSE(CloseHandle(handle), ERROR_INVALID_HANDLE);
    if (handle != NULL) { /* no port at all asks for a new one */
        SetLastError(0);
        CHECK(CreateIoCompletionPort((HANDLE)(uintptr_t)s, handle, 1, 0) == NULL);
        CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
    }
    CHECK_IS(closesocket(s), 0);
}

static void what_is_no_port_is_refused(void)
{
    char memory[256];
    unsigned bit;
    memset(memory, 0, sizeof memory);
    is_no_port(NULL);
    is_no_port(INVALID_HANDLE_VALUE);
    is_no_port((HANDLE)memory);
    for (bit = 0; bit < 64; bit++) {
        is_no_port((HANDLE)((uintptr_t)1 << bit));
        is_no_port((HANDLE) ~((uintptr_t)1 << bit));
    }
    for (bit = 0; bit < 64; bit++) {
        is_no_port((HANDLE)(uintptr_t)(bit * 4));
    }
}

static void a_port_is_made_and_closed(void)
{
    DWORD concurrency;
    for (concurrency = 0; concurrency < 3; concurrency++) {
        HANDLE port = new_port(concurrency);
        CHECK(port != INVALID_HANDLE_VALUE);
        CHECK(is_silent(port));
        CHECK_IS(CloseHandle(port), TRUE);
        is_no_port(port);
    }
}

static void a_closed_handle_stays_closed_however_many_follow(void)
{
    enum { PORTS = 200 };
    HANDLE closed = new_port(1), port;
    int i;
    CHECK_IS(CloseHandle(closed), TRUE);
    for (i = 0; i < PORTS; i++) {
        port = new_port(1);
        CHECK(port != closed);
        CHECK_FALSE(PostQueuedCompletionStatus(closed, 0, 0, NULL), ERROR_INVALID_HANDLE);
        CHECK_FALSE(CloseHandle(closed), ERROR_INVALID_HANDLE);
        CHECK_IS(CloseHandle(port), TRUE);
    }
}

static void ports_are_told_apart(void)
{
    HANDLE one = new_port(0), other = new_port(0);
    DWORD bytes;
    ULONG_PTR key;
    OVERLAPPED *overlapped;
    CHECK(one != other);
    CHECK_IS(PostQueuedCompletionStatus(one, 0, 1, NULL), TRUE);
    CHECK_IS(PostQueuedCompletionStatus(other, 0, 2, NULL), TRUE);
    CHECK_IS(GetQueuedCompletionStatus(other, &bytes, &key, &overlapped, SOON), TRUE);
    CHECK_IS(key, 2);
    CHECK_IS(GetQueuedCompletionStatus(one, &bytes, &key, &overlapped, SOON), TRUE);
    CHECK_IS(key, 1);
    CHECK_IS(CloseHandle(one), TRUE);
    CHECK_IS(CloseHandle(other), TRUE);
}

/* Rows 36 and 41: returns the same handle; the second association fails. */
static void a_socket_is_associated_once(void)
{
    HANDLE port = new_port(1), other = new_port(1), made;
    SOCKET s = udp_socket(), another = udp_socket(), closed = udp_socket();

    CHECK(CreateIoCompletionPort((HANDLE)(uintptr_t)s, port, 7, 99) == port);
    SetLastError(0);
    CHECK(CreateIoCompletionPort((HANDLE)(uintptr_t)s, port, 8, 0) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    SetLastError(0);
    CHECK(CreateIoCompletionPort((HANDLE)(uintptr_t)s, other, 8, 0) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);

    /* Without a port, one is made for the socket. */
    made = CreateIoCompletionPort((HANDLE)(uintptr_t)another, NULL, 9, 1);
    CHECK(made != NULL && made != port && made != other);
    SetLastError(0);
    CHECK(CreateIoCompletionPort((HANDLE)(uintptr_t)another, port, 9, 1) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK_IS(CloseHandle(made), TRUE);
    CHECK(CreateIoCompletionPort((HANDLE)(uintptr_t)another, port, 9, 1) == port);

    /* To associate nothing with a port is a mistake; so is a closed socket, and a port as a socket. */
    SetLastError(0);
    CHECK(CreateIoCompletionPort(INVALID_HANDLE_VALUE, port, 0, 0) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK_IS(closesocket(closed), 0);
    SetLastError(0);
    CHECK(CreateIoCompletionPort((HANDLE)(uintptr_t)closed, port, 0, 0) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);

    /* A number that is used again is a new socket. */
    CHECK_IS(closesocket(s), 0);
    s = udp_socket();
    CHECK(CreateIoCompletionPort((HANDLE)(uintptr_t)s, other, 8, 0) == other);

    /* A socket that is associated can be registered on the same port as well. */
    CHECK_IS(enable(other, s, 5, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(other, 5, SOCK_NOTIFY_EVENT_OUT);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(another), 0);
    CHECK_IS(CloseHandle(port), TRUE);
    CHECK_IS(CloseHandle(other), TRUE);
}

/* CloseHandle closes sockets and handles of this library, and nothing else. */
static void closing_what_is_no_handle_closes_nothing(void)
{
    SOCKET s = udp_socket();
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    CHECK_FALSE(CloseHandle((HANDLE)(uintptr_t)file), ERROR_INVALID_HANDLE);
    CHECK_FALSE(CloseHandle(NULL), ERROR_INVALID_HANDLE);
    CHECK(fcntl(file, F_GETFD) != -1);
    CHECK_IS(close(file), 0);
    CHECK(CloseHandle((HANDLE)(uintptr_t)s));
    CHECK(fcntl((int)s, F_GETFD) == -1);
    CHECK_FALSE(CloseHandle((HANDLE)(uintptr_t)s), ERROR_INVALID_HANDLE);
    CHECK_SOCKET_ERROR(closesocket(s), WSAENOTSOCK);
}

/* Row 31, and that a closed port drops the packets that are left on it. */
static void a_closed_port_lets_its_sockets_go(void)
{
    HANDLE port = new_port(0), other = new_port(0);
    SOCKET s = udp_socket();
    OVERLAPPED operation;
    memset(&operation, 0, sizeof operation);
    CHECK_IS(enable(port, s, 1, FILTER_OUT, LEVEL_ON), ERROR_SUCCESS);
    CHECK_IS(PostQueuedCompletionStatus(port, 1, 2, &operation), TRUE);
    CHECK_IS(CloseHandle(port), TRUE);
    CHECK_IS(enable(other, s, 2, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(other, 2, SOCK_NOTIFY_EVENT_OUT);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(CloseHandle(other), TRUE);
}

/* Nothing is left half made when the process has no descriptor left. */
static void without_descriptors_there_is_no_port(void)
{
    struct rlimit limit, none;
    SOCKET s;
    HANDLE port;
    CHECK_IS(getrlimit(RLIMIT_NOFILE, &limit), 0);
    s = udp_socket();
    CHECK_IS(closesocket(s), 0);
    none = limit;
    none.rlim_cur = (rlim_t)s; /* the first number that is free is too high by then */
    CHECK_IS(setrlimit(RLIMIT_NOFILE, &none), 0);
    SetLastError(0);
    port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
    CHECK(port == NULL);
    CHECK_IS(GetLastError(), ERROR_NO_SYSTEM_RESOURCES);
    WSASetLastError(0);
    s = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(s == INVALID_SOCKET);
    CHECK_IS(WSAGetLastError(), WSAEMFILE);
    CHECK_IS(setrlimit(RLIMIT_NOFILE, &limit), 0);
    port = new_port(0);
    CHECK_IS(CloseHandle(port), TRUE);
}

/* Row 32. */
static void a_forked_child_may_not_use_the_port(void)
{
    HANDLE port = new_port(0);
    SOCKET s = udp_socket();
    pid_t child;
    int status;
    CHECK_IS(enable(port, s, 1, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    child = fork_at_rest();
    if (child == 0) {
        OVERLAPPED_ENTRY entry;
        OVERLAPPED *overlapped;
        ULONG_PTR key;
        ULONG removed;
        DWORD bytes;
        UINT32 received;
        SOCK_NOTIFY_REGISTRATION registration = change(s, 1, SOCK_NOTIFY_OP_REMOVE, 0, 0);
        CHECK_FALSE(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, 0), ERROR_INVALID_HANDLE);
        CHECK_FALSE(GetQueuedCompletionStatusEx(port, &entry, 1, &removed, 0, FALSE), ERROR_INVALID_HANDLE);
        CHECK_FALSE(PostQueuedCompletionStatus(port, 0, 0, NULL), ERROR_INVALID_HANDLE);
        CHECK_IS(ProcessSocketNotifications(port, 1, &registration, 0, 0, NULL, NULL), ERROR_INVALID_HANDLE);
        CHECK_IS(ProcessSocketNotifications(port, 0, NULL, 0, 1, &entry, &received), ERROR_INVALID_HANDLE);
        CHECK_IS(closesocket(s), 0);
        CHECK_IS(CloseHandle(port), TRUE);
        is_no_port(port);
        _exit(0);
    }
    CHECK_IS(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_OUT); /* the child has closed its own descriptor only */
    END_REGISTRATION(port, s, 1);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(CloseHandle(port), TRUE);
}

enum { BY_ONE, BY_MANY, BY_NOTIFICATIONS, WAYS_TO_WAIT };

typedef struct {
    HANDLE port;
    int way;
    volatile int is_about_to_wait;
    DWORD outcome;
} WAITER;

static void *wait_for_the_end(void *argument)
{
    WAITER *waiter = (WAITER *)argument;
    OVERLAPPED_ENTRY entries[4];
    OVERLAPPED *overlapped = (OVERLAPPED *)entries;
    ULONG_PTR key;
    DWORD bytes;
    ULONG removed;
    UINT32 received;
    __atomic_store_n(&waiter->is_about_to_wait, 1, __ATOMIC_SEQ_CST);
    SetLastError(0);
    if (waiter->way == BY_ONE) {
        CHECK_IS(GetQueuedCompletionStatus(waiter->port, &bytes, &key, &overlapped, INFINITE), FALSE);
        CHECK(overlapped == NULL);
        waiter->outcome = GetLastError();
    } else if (waiter->way == BY_MANY) {
        CHECK_IS(GetQueuedCompletionStatusEx(waiter->port, entries, 4, &removed, INFINITE, FALSE), FALSE);
        waiter->outcome = GetLastError();
    } else {
        waiter->outcome =
            ProcessSocketNotifications(waiter->port, 0, NULL, INFINITE, 4, entries, &received);
    }
    return NULL;
}

/* Row 31: waiting threads get the code that the port was abandoned. Whether a thread sleeps in its
 * wait cannot be seen from outside; a late one has found a closed handle. So this is retried with
 * increasing delays until a thread of each kind was in its wait. */
static void closing_a_port_abandons_those_who_wait(void)
{
    int seen[WAYS_TO_WAIT] = {0}, all = 0, way;
    long pause;
    for (pause = 1; all < WAYS_TO_WAIT; pause = pause < 1000 ? pause * 2 : pause) {
        WAITER waiters[WAYS_TO_WAIT];
        pthread_t threads[WAYS_TO_WAIT];
        struct timespec time = {0, pause * 1000000 % 1000000000};
        HANDLE port = new_port(0);
        for (way = 0; way < WAYS_TO_WAIT; way++) {
            memset(&waiters[way], 0, sizeof waiters[way]);
            waiters[way].port = port;
            waiters[way].way = way;
            CHECK_IS(pthread_create(&threads[way], NULL, wait_for_the_end, &waiters[way]), 0);
        }
        for (way = 0; way < WAYS_TO_WAIT; way++) {
            while (!__atomic_load_n(&waiters[way].is_about_to_wait, __ATOMIC_SEQ_CST)) {
                sched_yield();
            }
        }
        nanosleep(&time, NULL);
        CHECK_IS(CloseHandle(port), TRUE);
        all = 0;
        for (way = 0; way < WAYS_TO_WAIT; way++) {
            CHECK_IS(pthread_join(threads[way], NULL), 0);
            CHECK(waiters[way].outcome == ERROR_ABANDONED_WAIT_0 ||
                  waiters[way].outcome == ERROR_INVALID_HANDLE);
            seen[way] |= waiters[way].outcome == ERROR_ABANDONED_WAIT_0;
            all += seen[way];
        }
        is_no_port(port);
    }
}

int main(void)
{
    start();
    a_port_is_made_and_closed();
    what_is_no_port_is_refused();
    a_closed_handle_stays_closed_however_many_follow();
    ports_are_told_apart();
    a_socket_is_associated_once();
    closing_what_is_no_handle_closes_nothing();
    a_closed_port_lets_its_sockets_go();
    without_descriptors_there_is_no_port();
    a_forked_child_may_not_use_the_port();
    closing_a_port_abandons_those_who_wait();
    return finish();
}
