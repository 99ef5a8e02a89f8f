/* The one call: its arguments, its two levels of failure, its time-out, and that it takes packets of every
 * kind. Rows 1 to 7 and 45. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <time.h>

#include "check.h"

/* The call fails with this code, and has changed nothing. */
static void is_refused(DWORD code, HANDLE port, SOCKET s, UINT32 count, SOCK_NOTIFY_REGISTRATION *changes,
                       UINT32 timeout, ULONG room, OVERLAPPED_ENTRY *entries, UINT32 *received)
{
    DWORD outcome;
    if (changes != NULL && (void *)changes != (void *)entries) {
        *changes = change(s, 1, SOCK_NOTIFY_OP_ENABLE, FILTER_OUT, LEVEL_ON);
    }
    outcome = ProcessSocketNotifications(port, count, changes, timeout, room, entries, received);
    if (outcome != code) {
        fprintf(stderr, "the call with %u changes at %p, time-out %u, room %u at %p, count at %p gives %u, not %u\n",
                (unsigned)count, (void *)changes, (unsigned)timeout, (unsigned)room, (void *)entries,
                (void *)received, (unsigned)outcome, (unsigned)code);
        exit(1);
    }
    if (changes != NULL && (void *)changes != (void *)entries) {
        CHECK_IS(changes->registrationResult, UNTOUCHED);
    }
    CHECK_IS(unregister(port, s), ERROR_NOT_FOUND);
}

static void wrong_arguments_fail_the_whole_call(void)
{
    HANDLE port = new_port(0);
    SOCKET s = udp_socket();
    SOCK_NOTIFY_REGISTRATION changes[4];
    OVERLAPPED_ENTRY entries[4];
    UINT32 received = UNTOUCHED;
    union {
        SOCK_NOTIFY_REGISTRATION changes[4];
        OVERLAPPED_ENTRY entries[4];
    } both;

    is_refused(WSAEINVAL, port, s, 0, changes, 0, 0, NULL, NULL);
    is_refused(WSAEINVAL, port, s, 0, changes, 0, 4, entries, &received);
    is_refused(WSAEFAULT, port, s, 1, NULL, 0, 0, NULL, NULL);
    is_refused(WSAEFAULT, port, s, 1, NULL, 0, 4, entries, &received);
    is_refused(WSAEINVAL, port, s, 1, changes, 0, 0, entries, NULL);
    is_refused(WSAEINVAL, port, s, 1, changes, 0, 0, NULL, &received);
    is_refused(WSAEINVAL, port, s, 1, changes, 5, 0, NULL, NULL);
    is_refused(WSAEINVAL, port, s, 1, changes, INFINITE, 0, NULL, NULL);
    is_refused(WSAEINVAL, port, s, 0, NULL, 5, 0, NULL, NULL);
    is_refused(WSAEINVAL, port, s, 0, NULL, 0, 0, entries, NULL);
    is_refused(WSAEINVAL, port, s, 0, NULL, 0, 0, NULL, &received);
    is_refused(WSAEFAULT, port, s, 1, changes, 0, 4, NULL, &received);
    is_refused(WSAEFAULT, port, s, 1, changes, 0, 4, entries, NULL);
    is_refused(WSAEFAULT, port, s, 1, changes, 0, 4, NULL, NULL);

    both.changes[0] = change(s, 1, SOCK_NOTIFY_OP_ENABLE, FILTER_OUT, LEVEL_ON);
    is_refused(WSAEINVAL, port, s, 1, both.changes, 0, 4, both.entries, &received);
    CHECK_IS(both.changes[0].registrationResult, UNTOUCHED);
    both.changes[3] = change(s, 1, SOCK_NOTIFY_OP_ENABLE, FILTER_OUT, LEVEL_ON);
    is_refused(WSAEINVAL, port, s, 1, &both.changes[3], 0, 4, both.entries, &received);

    CHECK(is_silent(port));
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(CloseHandle(port), TRUE);
}

static void nothing_asked_for_is_done(void)
{
    HANDLE port = new_port(0);
    CHECK_IS(ProcessSocketNotifications(port, 0, NULL, 0, 0, NULL, NULL), ERROR_SUCCESS);
    CHECK_IS(ProcessSocketNotifications(NULL, 0, NULL, 0, 0, NULL, NULL), ERROR_INVALID_HANDLE);
    CHECK_IS(CloseHandle(port), TRUE);
}

/* Row 1: first the changes, in order, and then the packets. */
static void changes_are_applied_in_order_and_before_packets_are_taken(void)
{
    HANDLE port = new_port(0);
    SOCKET s = udp_socket();
    SOCK_NOTIFY_REGISTRATION changes[6];
    OVERLAPPED_ENTRY entries[4];
    UINT32 received = UNTOUCHED;

    changes[0] = change(s, 1, SOCK_NOTIFY_OP_REMOVE, 0, 0);
    changes[1] = change(s, 2, SOCK_NOTIFY_OP_ENABLE, FILTER_OUT, LEVEL_ON);
    changes[2] = change(s, 3, SOCK_NOTIFY_OP_DISABLE, 0, 0);
    changes[3] = change(s, 4, SOCK_NOTIFY_OP_REMOVE, 0, 0);
    changes[4] = change(s, 5, SOCK_NOTIFY_OP_ENABLE, FILTER_OUT, LEVEL_ON);
    changes[5] = change(s, 6, SOCK_NOTIFY_OP_NONE, 0, 0);
    CHECK_IS(ProcessSocketNotifications(port, 6, changes, SOON, 4, entries, &received), ERROR_SUCCESS);
    CHECK_IS(changes[0].registrationResult, ERROR_NOT_FOUND);
    CHECK_IS(changes[1].registrationResult, ERROR_SUCCESS);
    CHECK_IS(changes[2].registrationResult, ERROR_SUCCESS);
    CHECK_IS(changes[3].registrationResult, ERROR_SUCCESS);
    CHECK_IS(changes[4].registrationResult, ERROR_INVALID_PARAMETER);
    CHECK_IS(changes[5].registrationResult, ERROR_SUCCESS);
    CHECK_IS(received, 1);
    CHECK_IS(entries[0].lpCompletionKey, 2);
    CHECK_IS(SocketNotificationRetrieveEvents(&entries[0]), SOCK_NOTIFY_EVENT_REMOVE);
    CHECK(is_silent(port));
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(CloseHandle(port), TRUE);
}

/* Rows 3 and 4: after a time-out too each change has been applied and has its result. */
static void a_time_out_is_a_success_of_the_call(void)
{
    HANDLE port = new_port(0);
    SOCKET s = udp_socket();
    SOCK_NOTIFY_REGISTRATION changes[2];
    OVERLAPPED_ENTRY entries[2];
    UINT32 received = UNTOUCHED;

    changes[0] = change(s, 1, SOCK_NOTIFY_OP_ENABLE, FILTER_IN, LEVEL_ON);
    changes[1] = change(s, 1, SOCK_NOTIFY_OP_DISABLE, 0, 0);
    CHECK_IS(ProcessSocketNotifications(port, 2, changes, A_WHILE, 2, entries, &received), WAIT_TIMEOUT);
    CHECK_IS(WAIT_TIMEOUT, 258);
    CHECK_IS(received, 0);
    CHECK_IS(changes[0].registrationResult, ERROR_SUCCESS);
    CHECK_IS(changes[1].registrationResult, ERROR_SUCCESS);
    CHECK_IS(ProcessSocketNotifications(port, 0, NULL, 0, 2, entries, &received), WAIT_TIMEOUT);
    END_REGISTRATION(port, s, 1);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(CloseHandle(port), TRUE);
}

static long long milliseconds(void)
{
    struct timespec now;
    CHECK_IS(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Row 45. What sleeps forever ends the program, by its alarm. */
static void a_call_in_which_a_change_was_refused_does_not_sleep(void)
{
    enum { ROUNDS = 5 };
    HANDLE port = new_port(0);
    SOCKET s = udp_socket();
    SOCK_NOTIFY_REGISTRATION changes[2];
    OVERLAPPED_ENTRY entries[4];
    OVERLAPPED *overlapped;
    ULONG_PTR key;
    DWORD bytes;
    UINT32 received = UNTOUCHED;
    long long began;
    int i, calls = 0;

    /* The combination that the reference page's third sample requests when a packet reports data
     * and a hang-up. */
    changes[0] = change(s, 1, SOCK_NOTIFY_OP_REMOVE | SOCK_NOTIFY_OP_ENABLE, FILTER_IN, LEVEL_ONCE);
    CHECK_IS(ProcessSocketNotifications(port, 1, changes, INFINITE, 4, entries, &received), ERROR_SUCCESS);
    CHECK_IS(received, 0);
    CHECK_IS(changes[0].registrationResult, ERROR_INVALID_PARAMETER);
    /* However often, if another change was not refused. */
    for (i = 0; i < 3; i++) {
        changes[0] = change(s, 1, SOCK_NOTIFY_OP_ENABLE, FILTER_IN, LEVEL_ON);
        changes[1] = change(INVALID_SOCKET, 2, SOCK_NOTIFY_OP_ENABLE, FILTER_IN, LEVEL_ON);
        received = UNTOUCHED;
        CHECK_IS(ProcessSocketNotifications(port, 2, changes, INFINITE, 4, entries, &received), ERROR_SUCCESS);
        CHECK_IS(received, 0);
        CHECK_IS(changes[0].registrationResult, ERROR_SUCCESS);
        CHECK_IS(changes[1].registrationResult, WSAENOTSOCK);
    }
    /* Only refused changes, after a call with others: this is the first of its kind. */
    changes[1] = change(INVALID_SOCKET, 2, SOCK_NOTIFY_OP_ENABLE, FILTER_IN, LEVEL_ON);
    CHECK_IS(ProcessSocketNotifications(port, 1, changes + 1, INFINITE, 4, entries, &received), ERROR_SUCCESS);
    CHECK_IS(received, 0);
    /* Available packets are taken. */
    CHECK_IS(PostQueuedCompletionStatus(port, 5, 7, NULL), TRUE);
    changes[1] = change(INVALID_SOCKET, 2, SOCK_NOTIFY_OP_ENABLE, FILTER_IN, LEVEL_ON);
    CHECK_IS(ProcessSocketNotifications(port, 1, changes + 1, INFINITE, 4, entries, &received), ERROR_SUCCESS);
    CHECK_IS(received, 1);
    CHECK_IS(entries[0].lpCompletionKey, 7);
    /* The errors are new again after a packet, and after any other wait. */
    for (i = 0; i < 2; i++) {
        CHECK_IS(ProcessSocketNotifications(port, 1, changes + 1, INFINITE, 4, entries, &received), ERROR_SUCCESS);
        CHECK_IS(received, 0);
        CHECK_FALSE(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, 0), WAIT_TIMEOUT);
    }
    /* The same array again and again does not spin. */
    for (began = milliseconds(); milliseconds() - began < ROUNDS * A_WHILE; calls++) {
        DWORD outcome = ProcessSocketNotifications(port, 1, changes + 1, A_WHILE, 4, entries, &received);
        CHECK_IS(outcome, calls == 0 ? ERROR_SUCCESS : WAIT_TIMEOUT);
        CHECK_IS(received, 0);
        CHECK_IS(changes[1].registrationResult, WSAENOTSOCK);
    }
    CHECK(calls <= 1 + ROUNDS);
    CHECK_IS(PostQueuedCompletionStatus(port, 5, 7, NULL), TRUE);
    CHECK_IS(ProcessSocketNotifications(port, 1, changes + 1, INFINITE, 4, entries, &received), ERROR_SUCCESS);
    CHECK_IS(received, 1);
    END_REGISTRATION(port, s, 1);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(CloseHandle(port), TRUE);
}

/* Row 7. */
static void a_wait_never_ends_early(void)
{
    enum { TIME = 60 };
    HANDLE port = new_port(0);
    OVERLAPPED_ENTRY entry;
    OVERLAPPED *overlapped;
    ULONG_PTR key;
    DWORD bytes;
    ULONG removed;
    UINT32 received;
    long long began = milliseconds();
    CHECK_IS(ProcessSocketNotifications(port, 0, NULL, TIME, 1, &entry, &received), WAIT_TIMEOUT);
    CHECK(milliseconds() - began >= TIME);
    began = milliseconds();
    CHECK_FALSE(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, TIME), WAIT_TIMEOUT);
    CHECK(milliseconds() - began >= TIME);
    began = milliseconds();
    CHECK_FALSE(GetQueuedCompletionStatusEx(port, &entry, 1, &removed, TIME, FALSE), WAIT_TIMEOUT);
    CHECK(milliseconds() - began >= TIME);
    CHECK_IS(CloseHandle(port), TRUE);
}

/* Row 5: whichever call takes them, the packets are the same. */
static void each_call_takes_packets_of_every_kind(void)
{
    HANDLE port = new_port(0);
    SOCKET s = udp_socket();
    OVERLAPPED operation, *overlapped = NULL;
    OVERLAPPED_ENTRY entries[8];
    ULONG_PTR key = 0;
    DWORD bytes = 0;
    ULONG removed = 0;
    UINT32 received = 0;
    int way, i;

    for (way = 0; way < 3; way++) {
        int posted = 0, notified = 0, ended = 0;
        CHECK_IS(PostQueuedCompletionStatus(port, 77, 7, &operation), TRUE);
        CHECK_IS(enable(port, s, 9, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
        while (posted + notified + ended < 3) {
            int count = 1;
            if (way == 0) {
                CHECK_IS(ProcessSocketNotifications(port, 0, NULL, SOON, 8, entries, &received), ERROR_SUCCESS);
                count = (int)received;
            } else if (way == 1) {
                CHECK_IS(GetQueuedCompletionStatusEx(port, entries, 8, &removed, SOON, FALSE), TRUE);
                count = (int)removed;
            } else {
                CHECK_IS(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, SOON), TRUE);
                entries[0].lpCompletionKey = key;
                entries[0].lpOverlapped = overlapped;
                entries[0].dwNumberOfBytesTransferred = bytes;
            }
            CHECK(count >= 1 && count <= 8);
            for (i = 0; i < count; i++) {
                if (entries[i].lpCompletionKey == 7) {
                    CHECK(entries[i].lpOverlapped == &operation);
                    CHECK_IS(entries[i].dwNumberOfBytesTransferred, 77);
                    posted++;
                } else if (SocketNotificationRetrieveEvents(&entries[i]) & SOCK_NOTIFY_EVENT_REMOVE) {
                    CHECK_IS(entries[i].lpCompletionKey, 9);
                    CHECK_IS(notified, 1);
                    ended++;
                } else {
                    CHECK_IS(entries[i].lpCompletionKey, 9);
                    CHECK_IS(SocketNotificationRetrieveEvents(&entries[i]), SOCK_NOTIFY_EVENT_OUT);
                    CHECK_IS(entries[i].dwNumberOfBytesTransferred, SOCK_NOTIFY_EVENT_OUT);
                    CHECK_IS(unregister(port, s), ERROR_SUCCESS);
                    notified++;
                }
            }
        }
        CHECK(posted == 1 && notified == 1 && ended == 1);
        CHECK(is_silent(port));
    }
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(CloseHandle(port), TRUE);
}

static void what_there_is_no_room_for_stays_queued(void)
{
    enum { PACKETS = 10 };
    HANDLE port = new_port(0);
    OVERLAPPED_ENTRY entries[3];
    UINT32 received;
    unsigned i, taken = 0;
    for (i = 0; i < PACKETS; i++) {
        CHECK_IS(PostQueuedCompletionStatus(port, i, 100 + i, NULL), TRUE);
    }
    while (taken < PACKETS) {
        CHECK_IS(ProcessSocketNotifications(port, 0, NULL, SOON, 3, entries, &received), ERROR_SUCCESS);
        CHECK(received >= 1 && received <= 3);
        for (i = 0; i < received; i++, taken++) {
            CHECK_IS(entries[i].lpCompletionKey, 100 + taken);
            CHECK_IS(entries[i].dwNumberOfBytesTransferred, taken);
        }
    }
    CHECK(is_silent(port));
    CHECK_IS(CloseHandle(port), TRUE);
}

int main(void)
{
    start();
    wrong_arguments_fail_the_whole_call();
    nothing_asked_for_is_done();
    changes_are_applied_in_order_and_before_packets_are_taken();
    a_time_out_is_a_success_of_the_call();
    a_call_in_which_a_change_was_refused_does_not_sleep();
    a_wait_never_ends_early();
    each_call_takes_packets_of_every_kind();
    what_there_is_no_room_for_stays_queued();
    return finish();
}
