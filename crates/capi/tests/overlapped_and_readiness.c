/* A socket that is registered for notifications and also has operations, in either order:
 * operations are served first, each packet has the key of its kind, and neither ends the other. */
#include <winsock2.h>
#include <mswsock.h>

#ifndef _WIN32
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "check.h"
#include "overlapped.h"

#define KEY 11u
#define WATCHED 22u

static HANDLE port;

/* Rule 28: a receive in flight is served first, and the data it took is not reported. */
static void a_receive_is_served_before_readiness_is_reported(void)
{
    SOCKET near, far;
    char bytes[2];
    OVERLAPPED overlapped = fresh(NULL);
    associated_pair(port, KEY, &near, &far);
    CHECK_PENDING(receive_into(near, bytes, 2, NULL, &overlapped));
    CHECK_IS(enable(port, near, WATCHED, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
    send_all(far, "ab", 2);
    CHECK_ENDED(port, KEY, &overlapped, 2);
    CHECK(is_silent(port));
    /* What no receive takes is reported, with the other key. */
    send_all(far, "c", 1);
    CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_IN);
    receive_all(near, bytes, 1);
    END_REGISTRATION(port, near, WATCHED);
    /* Operations continue after that. */
    CHECK_PENDING(receive_into(near, bytes, 2, NULL, &overlapped));
    send_all(far, "d", 1);
    CHECK_ENDED(port, KEY, &overlapped, 1);
    CHECK(is_silent(port));
    close_both(near, far);
}

/* The next two packets, in either order: that of an operation that has brought a byte, and one that reports IN. */
static void both_come(LPOVERLAPPED overlapped)
{
    OVERLAPPED_ENTRY entries[2];
    ULONG count = 0, more = 0;
    int has_ended = 0, is_reported = 0;
    CHECK(GetQueuedCompletionStatusEx(port, entries, 2, &count, SOON, FALSE));
    if (count == 1)
        CHECK(GetQueuedCompletionStatusEx(port, entries + 1, 1, &more, SOON, FALSE));
    CHECK_IS(count + more, 2);
    for (count = 0; count < 2; count++) {
        OVERLAPPED_ENTRY *entry = &entries[count];
        if (entry->lpOverlapped) {
            CHECK(entry->lpOverlapped == overlapped);
            CHECK_IS(entry->lpCompletionKey, KEY);
            CHECK_IS(entry->dwNumberOfBytesTransferred, 1);
            has_ended++;
        } else {
            CHECK_IS(entry->lpCompletionKey, WATCHED);
            CHECK_IS(SocketNotificationRetrieveEvents(entry), SOCK_NOTIFY_EVENT_IN);
            is_reported++;
        }
    }
    CHECK(has_ended == 1 && is_reported == 1);
}

static void an_operation_may_begin_on_what_is_registered(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    associated_pair(port, KEY, &near, &far);
    CHECK_IS(enable(port, near, WATCHED, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    send_all(far, "ab", 2);
    /* It is still enabled, and reports once the data that the receive has left. */
    both_come(&overlapped);
    CHECK_IS(byte, 'a');
    CHECK(is_silent(port));
    send_all(far, "c", 1);
    CHECK(is_silent(port));
    CHECK_IS(enable(port, near, WATCHED + 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_IN);
    CHECK(is_silent(port));
    CHECK_IS(disable(port, near), ERROR_SUCCESS);
    CHECK(is_silent(port));
    close_both(near, far);
}

/* A one-shot registration that has reported stays disabled when operations begin. */
static void what_is_spent_stays_so(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    associated_pair(port, KEY, &near, &far);
    CHECK_IS(enable(port, near, WATCHED, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    send_all(far, "abc", 3);
    CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_IN);
    CHECK_IS(receive_into(near, &byte, 1, NULL, &overlapped), 0);
    CHECK_ENDED(port, KEY, &overlapped, 1);
    CHECK(is_silent(port));
    CHECK_IS(enable(port, near, WATCHED, FILTER_IN | FILTER_OUT, EDGE_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_IN | SOCK_NOTIFY_EVENT_OUT);
    CHECK(is_silent(port));
    close_both(near, far);
}

static void a_removal_leaves_operations_alone_and_closing_ends_both(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    associated_pair(port, KEY, &near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    CHECK_IS(enable(port, near, WATCHED, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_OUT);
    CHECK_IS(unregister(port, near), ERROR_SUCCESS);
    CHECK_IS(unregister(port, near), ERROR_SUCCESS);
    CHECK_IS(enable(port, near, WATCHED, FILTER_OUT, LEVEL_ONCE), ERROR_INVALID_PARAMETER);
    CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_REMOVE);
    CHECK(is_silent(port));
    CHECK_IS(unregister(port, near), ERROR_NOT_FOUND);
    CHECK_IS(enable(port, near, WATCHED + 1, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, WATCHED + 1, SOCK_NOTIFY_EVENT_OUT);
    CHECK_IS(closesocket(near), 0);
    CHECK_FAILED(port, KEY, &overlapped, 0, closed_code());
    CHECK(is_silent(port));
    closesocket(far);
}

/* Notifications on one port, operations on another. */
static void each_may_have_a_port_of_its_own(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    HANDLE other = new_port(1);
    associated_pair(other, KEY, &near, &far);
    CHECK_IS(enable(port, near, WATCHED, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_OUT);
    CHECK_ENDED_BY_A_BYTE(far, other, KEY, &overlapped);
    CHECK(is_silent(port));
    close_both(near, far);
    /* A socket with operations on one port is registered on another when none is in flight. */
    associated_pair(other, KEY, &near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
#if HAS_SOCKET_CALLS /* The DLL does not see where operations go. */
    CHECK_IS(enable(port, near, WATCHED, FILTER_OUT, LEVEL_ONCE), ERROR_INVALID_PARAMETER);
#endif
    CHECK_ENDED_BY_A_BYTE(far, other, KEY, &overlapped);
    CHECK_IS(enable(port, near, WATCHED, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_OUT);
    close_both(near, far);
    CHECK(CloseHandle(other));
}

#ifndef _WIN32 /* There operations are the system's, and registrations the library's. */
/* The registration of the socket given to an accept reports the accepted connection. */
static void a_registration_goes_on_with_the_connection(void)
{
    enum { ENABLED, ON_LINE, DISABLED, PERSISTENT, REMOVED, SORTS };
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address);
    int sort;
    for (sort = ENABLED; sort < SORTS * 2; sort++) {
        int has_data = sort >= SORTS, what = sort % SORTS;
        SOCKET s = tcp_socket(), client;
        OVERLAPPED overlapped = fresh(NULL), other = fresh(NULL);
        char place[64 + 2 * (sizeof(struct sockaddr_in) + 16)], byte;
        DWORD block = sizeof(struct sockaddr_in) + 16, data = has_data ? 1 : 0;
        associate(s, port, KEY);
        if (what == ON_LINE) /* an operation before, which makes its place at the port */
            CHECK_SOCKET_ERROR(receive_into(s, &byte, 1, NULL, &other), WSAENOTCONN);
        CHECK_IS(enable(port, s, WATCHED, FILTER_IN, what == PERSISTENT ? LEVEL_ON : LEVEL_ONCE), ERROR_SUCCESS);
        CHECK(is_silent(port));
        if (what == DISABLED)
            CHECK_IS(disable(port, s), ERROR_SUCCESS);
        CHECK_FALSE(AcceptEx(listener, s, place, data, block, block, NULL, &overlapped), WSA_IO_PENDING);
        if (what == REMOVED)
            CHECK_IS(unregister(port, s), ERROR_SUCCESS);
        client = tcp_connected_to(&address);
        if (has_data)
            send_all(client, "d", 1);
        until_ended(&overlapped);
        CHECK_IS(overlapped.Internal, SUCCEEDED_WELL);
        CHECK_IS(overlapped.InternalHigh, data);
        if (what == REMOVED) { /* its last packet comes, once */
            CHECK_IS(unregister(port, s), ERROR_SUCCESS);
            CHECK_IS(enable(port, s, WATCHED, FILTER_IN, LEVEL_ONCE), ERROR_INVALID_PARAMETER);
            CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_REMOVE);
            CHECK_IS(enable(port, s, WATCHED, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        }
        CHECK(is_silent(port));
        send_all(client, "x", 1);
        if (what == DISABLED) {
            CHECK(is_silent(port));
            CHECK_IS(enable(port, s, WATCHED + 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        }
        CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_IN);
        receive_all(s, &byte, 1);
        CHECK_IS(byte, 'x');
        CHECK(is_silent(port));
        if (what == PERSISTENT) {
            send_all(client, "y", 1);
            CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_IN);
            receive_all(s, &byte, 1);
        }
        /* Operations start in parallel, with the other key. */
        CHECK_PENDING(receive_into(s, &byte, 1, NULL, &other));
        CHECK_ENDED_BY_A_BYTE(client, port, KEY, &other);
        END_REGISTRATION(port, s, WATCHED);
        CHECK(is_silent(port));
        close_both(s, client);
    }
    closesocket(listener);
}

/* So it does when a socket is disconnected to be used again. One that has reported stays disabled. */
static void a_registration_goes_on_with_a_socket_that_is_used_again(void)
{
    int has_reported;
    for (has_reported = 0; has_reported < 2; has_reported++) {
        struct sockaddr_in address;
        SOCKET listener = tcp_listener(&address), s = tcp_connected_to(&address), peer;
        OVERLAPPED overlapped = fresh(NULL);
        char byte;
        associate(s, port, KEY);
        peer = (SOCKET)accept(listener, NULL, NULL);
        CHECK(peer != INVALID_SOCKET);
        CHECK_IS(enable(port, s, WATCHED, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        if (has_reported) {
            send_all(peer, "w", 1);
            CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_IN);
            /* An empty socket has no meaning for the next one with its number. */
            set_nonblocking(s);
            drain(s);
        }
        CHECK(is_silent(port));
        CHECK_BEGINS(DisconnectEx(s, &overlapped, TF_REUSE_SOCKET, 0));
        CHECK_ENDED(port, KEY, &overlapped, 0);
        CHECK(is_silent(port));
        closesocket(peer);
        CHECK_BEGINS(ConnectEx(s, (struct sockaddr *)&address, sizeof address, NULL, 0, NULL, &overlapped));
        CHECK_ENDED(port, KEY, &overlapped, 0);
        peer = (SOCKET)accept(listener, NULL, NULL);
        CHECK(is_silent(port));
        send_all(peer, "x", 1);
        if (has_reported) {
            CHECK(is_silent(port));
            CHECK_IS(enable(port, s, WATCHED + 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        }
        CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_IN);
        receive_all(s, &byte, 1);
        END_REGISTRATION(port, s, WATCHED);
        close_both(s, peer);
        closesocket(listener);
    }
}
#endif

#ifndef _WIN32
/* An accept that has waited does not replace what its socket's number names by now. Also if its listener is registered. */
static void an_accept_leaves_what_has_its_number_alone(void)
{
    int is_registered;
    for (is_registered = 0; is_registered < 2; is_registered++) {
        struct sockaddr_in address;
        SOCKET listener = tcp_listener(&address), s = tcp_socket(), client;
        OVERLAPPED overlapped = fresh(NULL);
        char place[2 * (sizeof(struct sockaddr_in) + 16)];
        DWORD block = sizeof place / 2, bytes = UNTOUCHED;
        LPOVERLAPPED which = NULL;
        ULONG_PTR key = WATCHED;
        struct stat before, after;
        int ends[2];
        associate(listener, port, KEY);
        if (is_registered)
            CHECK_IS(enable(port, listener, WATCHED, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
        CHECK_BEGINS(AcceptEx(listener, s, place, 0, block, block, NULL, &overlapped));
        /* The library does not see that. */
        CHECK_IS(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        CHECK_IS(syscall(SYS_dup3, ends[0], (int)s, 0), s);
        CHECK_IS(fstat((int)s, &before), 0);
        client = tcp_connected_to(&address);
        while (key == WATCHED)
            CHECK(!GetQueuedCompletionStatus(port, &bytes, &key, &which, SOON) || key == WATCHED);
        CHECK(which == &overlapped && GetLastError() == ERROR_OPERATION_ABORTED);
        CHECK_IS(fstat((int)s, &after), 0);
        CHECK(before.st_ino == after.st_ino);
        syscall(SYS_close, ends[0]);
        syscall(SYS_close, ends[1]);
        CHECK_IS(closesocket(s), 0);
        CHECK_IS(closesocket(client), 0);
        if (is_registered)
            END_REGISTRATION(port, listener, WATCHED);
        CHECK_IS(closesocket(listener), 0);
    }
}
#endif

int main(void)
{
    start();
    port = new_port(2);
    a_receive_is_served_before_readiness_is_reported();
    an_operation_may_begin_on_what_is_registered();
    what_is_spent_stays_so();
    a_removal_leaves_operations_alone_and_closing_ends_both();
    each_may_have_a_port_of_its_own();
#ifndef _WIN32
    a_registration_goes_on_with_the_connection();
    a_registration_goes_on_with_a_socket_that_is_used_again();
    an_accept_leaves_what_has_its_number_alone();
#endif
    CHECK(CloseHandle(port));
    return finish();
}
