/* Windows-specific behaviour of this library's ports: with the system's own ports, with sockets
 * closed unseen, and with handlers that sleep. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

/* The system's own calls, before their names mean those of this library. */
static HANDLE system_port(void)
{
    return CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
}

static BOOL system_post(HANDLE port)
{
    return PostQueuedCompletionStatus(port, 0, 0, NULL);
}

static BOOL system_takes(HANDLE port)
{
    OVERLAPPED_ENTRY entry;
    ULONG removed;
    return GetQueuedCompletionStatusEx(port, &entry, 1, &removed, 0, FALSE);
}

static HANDLE system_associates(SOCKET s, HANDLE port)
{
    return CreateIoCompletionPort((HANDLE)s, port, 0, 0);
}

static BOOL system_closes(HANDLE handle)
{
    return CloseHandle(handle);
}

#include "../check.h"

static HANDLE port;

static void each_refuses_the_ports_of_the_other(void)
{
    HANDLE theirs = system_port(), twin = NULL;
    SOCKET s = udp_socket();
    SOCK_NOTIFY_REGISTRATION changed = change(s, 1, SOCK_NOTIFY_OP_ENABLE, FILTER_OUT, LEVEL_ONCE);
    OVERLAPPED *overlapped;
    ULONG_PTR key;
    DWORD bytes;
    CHECK(theirs != NULL);
    CHECK_FALSE(system_post(port), ERROR_INVALID_HANDLE);
    CHECK_FALSE(system_takes(port), ERROR_INVALID_HANDLE);
    CHECK_FALSE(system_associates(s, port) != NULL, ERROR_INVALID_HANDLE);
    CHECK_FALSE(system_closes(port), ERROR_INVALID_HANDLE);
    CHECK_IS(WaitForSingleObject(port, 0), WAIT_FAILED);
    CHECK_IS(DuplicateHandle(GetCurrentProcess(), port, GetCurrentProcess(), &twin, 0, FALSE, DUPLICATE_SAME_ACCESS),
             FALSE);

    CHECK_FALSE(PostQueuedCompletionStatus(theirs, 0, 0, NULL), ERROR_INVALID_HANDLE);
    CHECK_FALSE(GetQueuedCompletionStatus(theirs, &bytes, &key, &overlapped, 0), ERROR_INVALID_HANDLE);
    CHECK_FALSE(CreateIoCompletionPort((HANDLE)s, theirs, 0, 0) != NULL, ERROR_INVALID_HANDLE);
    CHECK_IS(ProcessSocketNotifications(theirs, 1, &changed, 0, 0, NULL, NULL), ERROR_INVALID_HANDLE);
    CHECK_IS(changed.registrationResult, UNTOUCHED);
    CHECK_IS(cp_peek(theirs), CP_ERROR_INVALID_HANDLE);

    /* With one exception: the system closes its own handles. */
    CHECK_IS(CloseHandle(theirs), TRUE);
    CHECK_FALSE(system_post(theirs), ERROR_INVALID_HANDLE);
    CHECK(is_silent(port));
    CHECK_IS(closesocket(s), 0);
}

static void a_closed_port_is_refused_and_its_handle_does_not_come_back(void)
{
    HANDLE closed[200];
    int i, j;
    for (i = 0; i < 200; i++) {
        closed[i] = new_port(0);
        CHECK_IS(CloseHandle(closed[i]), TRUE);
        CHECK_FALSE(CloseHandle(closed[i]), ERROR_INVALID_HANDLE);
        for (j = 0; j < i; j++) {
            CHECK(closed[i] != closed[j]);
        }
    }
    for (i = 0; i < 200; i++) {
        CHECK_FALSE(PostQueuedCompletionStatus(closed[i], 0, 0, NULL), ERROR_INVALID_HANDLE);
    }
    CHECK_FALSE(CloseHandle(NULL), ERROR_INVALID_HANDLE);
}

static unsigned __stdcall waits(void *waited)
{
    DWORD bytes;
    ULONG_PTR key;
    OVERLAPPED *overlapped;
    CHECK_FALSE(GetQueuedCompletionStatus((HANDLE)waited, &bytes, &key, &overlapped, INFINITE), ERROR_ABANDONED_WAIT_0);
    return 0;
}

static void a_port_that_is_closed_lets_its_threads_go(void)
{
    HANDLE gone = new_port(0), thread = (HANDLE)_beginthreadex(NULL, 0, waits, gone, 0, NULL);
    Sleep(A_WHILE);
    CHECK_IS(CloseHandle(gone), TRUE);
    CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
    CHECK_IS(CloseHandle(thread), TRUE);
}

static void a_socket_that_was_closed_unseen_is_another_one(void)
{
    static const unsigned triggers[] = {LEVEL_ONCE, LEVEL_ON, EDGE_ONCE};
    int i;
    for (i = 0; i < 3; i++) {
        SOCKET s = udp_socket();
        CHECK_IS(enable(port, s, 1, FILTER_IN, triggers[i]), ERROR_SUCCESS);
        s = another(s);
        CHECK_IS(disable(port, s), ERROR_NOT_FOUND);
        CHECK_IS(unregister(port, s), ERROR_NOT_FOUND);
        CHECK_IS(enable(port, s, 2, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
        CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_OUT);
        s = another(s);
        CHECK_IS(enable(port, s, 3, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
        CHECK_NEXT(port, 3, SOCK_NOTIFY_EVENT_OUT);
        END_REGISTRATION(port, s, 3);
        close_unseen(s);
    }
    CHECK(is_silent(port));
}

static void what_a_socket_stands_for_is_ended_by_a_word(void)
{
    SOCKET s = udp_socket();
    CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
    cp_forget(s);
    CHECK_IS(unregister(port, s), ERROR_NOT_FOUND);
    CHECK_IS(enable(port, s, 2, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_OUT);
    cp_forget(s);
    cp_forget(s);
    cp_forget(INVALID_SOCKET);
    CHECK_IS(cp_close_socket(s), 0);
    CHECK_SOCKET_ERROR(cp_close_socket(s), WSAENOTSOCK);
    CHECK(is_silent(port));
}

static void the_function_is_found_by_its_name(void)
{
    typedef DWORD(WINAPI * PROCESS)(HANDLE, UINT32, SOCK_NOTIFY_REGISTRATION *, UINT32, ULONG, OVERLAPPED_ENTRY *,
                                    UINT32 *);
    PROCESS process = (PROCESS)(void (*)(void))GetProcAddress(GetModuleHandleA("completion_port.dll"),
                                                              "ProcessSocketNotifications");
    SOCKET s = udp_socket();
    SOCK_NOTIFY_REGISTRATION changed = change(s, 5, SOCK_NOTIFY_OP_ENABLE, FILTER_OUT, LEVEL_ONCE);
    OVERLAPPED_ENTRY entry;
    UINT32 received = 0;
    CHECK(process != NULL);
    CHECK_IS(process(port, 1, &changed, SOON, 1, &entry, &received), ERROR_SUCCESS);
    CHECK_IS(changed.registrationResult, ERROR_SUCCESS);
    CHECK(received == 1 && entry.lpCompletionKey == 5 && entry.lpOverlapped == NULL && entry.Internal == 0);
    CHECK_IS(SocketNotificationRetrieveEvents(&entry), SOCK_NOTIFY_EVENT_OUT);
    END_REGISTRATION(port, s, 5);
    CHECK_IS(closesocket(s), 0);
}

typedef struct {
    HANDLE port, sleeps_on;
    volatile LONG has_packet;
} SLEEPER;

static void sleep_on_it(void *context)
{
    CHECK_IS(WaitForSingleObject(((SLEEPER *)context)->sleeps_on, SOON), WAIT_OBJECT_0);
}

static unsigned __stdcall takes_one_and_sleeps(void *context)
{
    SLEEPER *sleeper = (SLEEPER *)context;
    CHECK_NEXT(sleeper->port, 1, 0);
    InterlockedExchange(&sleeper->has_packet, 1);
    cp_blocking(sleeper->port, sleep_on_it, sleeper);
    return 0;
}

/* Rows 38 and 39. */
static void a_handler_that_says_so_sleeps_without_its_seat(void)
{
    SLEEPER sleeper;
    HANDLE thread;
    sleeper.port = new_port(1);
    sleeper.sleeps_on = CreateEventA(NULL, TRUE, FALSE, NULL);
    sleeper.has_packet = 0;
    thread = (HANDLE)_beginthreadex(NULL, 0, takes_one_and_sleeps, &sleeper, 0, NULL);
    CHECK_IS(PostQueuedCompletionStatus(sleeper.port, 0, 1, NULL), TRUE);
    while (!sleeper.has_packet) {
        Sleep(1);
    }
    CHECK_IS(PostQueuedCompletionStatus(sleeper.port, 0, 2, NULL), TRUE);
    CHECK_NEXT(sleeper.port, 2, 0);
    CHECK_IS(SetEvent(sleeper.sleeps_on), TRUE);
    CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
    CHECK_IS(CloseHandle(thread), TRUE);
    CHECK_IS(CloseHandle(sleeper.sleeps_on), TRUE);
    CHECK_IS(CloseHandle(sleeper.port), TRUE);
    /* For an invalid port nothing needs to be announced. */
    sleeper.sleeps_on = CreateEventA(NULL, TRUE, TRUE, NULL);
    cp_blocking(NULL, sleep_on_it, &sleeper);
    CHECK_IS(CloseHandle(sleeper.sleeps_on), TRUE);
}

static void what_is_queued_is_seen_and_left(void)
{
    CHECK_IS(cp_peek(port), CP_ERROR_TIMEOUT);
    CHECK_IS(PostQueuedCompletionStatus(port, 3, 4, NULL), TRUE);
    CHECK_IS(cp_peek(port), CP_SUCCESS);
    CHECK_NEXT(port, 4, 3);
    CHECK_IS(cp_peek(port), CP_ERROR_TIMEOUT);
}

int main(void)
{
    start();
    port = new_port(0);
    each_refuses_the_ports_of_the_other();
    a_closed_port_is_refused_and_its_handle_does_not_come_back();
    a_port_that_is_closed_lets_its_threads_go();
    a_socket_that_was_closed_unseen_is_another_one();
    what_a_socket_stands_for_is_ended_by_a_word();
    the_function_is_found_by_its_name();
    a_handler_that_says_so_sleeps_without_its_seat();
    what_is_queued_is_seen_and_left();
    CHECK_IS(CloseHandle(port), TRUE);
    return finish();
}
