/* What reads have found out spares questions, as long as it is about the socket and the packets that it was
 * found out of. Row 30. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <completion_port.h>

#include <sys/epoll.h>
#include <sys/syscall.h>

#include "check.h"

static HANDLE port;

/* ---- what happens while the library asks the kernel ------------------------------------------------- */

/* The program defines these calls, which the library uses. This function is called once, when the
 * kernel has answered and before the library gets the answer. */
static void (*behind_a_read)(void);
static void (*behind_a_change)(void);

static void call_once(void (**what)(void))
{
    void (*call)(void) = *what;
    *what = NULL;
    if (call != NULL) {
        call();
    }
}

#ifdef __cplusplus
#define THROWS_NOTHING throw()
extern "C" {
#else
#define THROWS_NOTHING
#endif
/* The headers mean a call of the library by the system's name. */
ssize_t system_recv(int descriptor, void *buffer, size_t size, int flags) __asm__("recv");
ssize_t system_recv(int descriptor, void *buffer, size_t size, int flags)
{
    long outcome = syscall(SYS_recvfrom, descriptor, buffer, size, flags, NULL, NULL);
    int error = errno;
    if (outcome < 0) {
        call_once(&behind_a_read);
    }
    errno = error;
    return (ssize_t)outcome;
}

int epoll_ctl(int set, int operation, int descriptor, struct epoll_event *event) THROWS_NOTHING
{
    long outcome = syscall(SYS_epoll_ctl, set, operation, descriptor, event);
    int error = errno;
    if (operation == EPOLL_CTL_MOD) {
        call_once(&behind_a_change);
    }
    errno = error;
    return (int)outcome;
}
#ifdef __cplusplus
}
#endif

/* ---- sockets ---------------------------------------------------------------------------------------- */

/* The sockets to write to and to read from while the library asks the kernel. */
static SOCKET ours, theirs;

/* A socket created by the library. */
static SOCKET given_out(void)
{
    SOCKET s = udp_socket();
    set_nonblocking(s);
    return s;
}

/* Registered, with a packet taken and nothing left to read. */
static void read_what_was_told(SOCKET s)
{
    CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    send_to_itself(s);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
    drain(s);
}

/* Enabling applies to the socket that has the number, and its registration ends here. */
static void check_next_socket(SOCKET s)
{
    CHECK_IS(enable(port, s, 2, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    send_to_itself(s);
    CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_IN);
    END_REGISTRATION(port, s, 2);
    CHECK_IS(closesocket(s), 0);
    CHECK(is_silent(port));
}

/* ---- whose hint it is ------------------------------------------------------------------------------- */

/* The next socket with the number was not created by the library, so its hints spare nothing. */
static void a_number_that_was_given_up_is_asked_about(void)
{
    SOCKET s = given_out();
    cp_forget((int)s);
    s = another(s);
    read_what_was_told(s);
    check_next_socket(another(s));
}

/* It had nothing left to read, and its number was reused; the new socket has reported and read
 * nothing. */
static void what_a_former_socket_had_read_spares_nothing(void)
{
    SOCKET s = given_out();
    read_what_was_told(s);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(given_out(), s);
    CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    check_next_socket(another(s));
}

static void a_hint_spares_nothing_of_what_is_being_removed(void)
{
    SOCKET s = given_out();
    read_what_was_told(s);
    CHECK_IS(unregister(port, s), ERROR_SUCCESS);
    s = another(s);
    CHECK_IS(enable(port, s, 2, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_REMOVE);
    check_next_socket(s);
}

static void the_checked_mode_asks_in_spite_of_a_hint(void)
{
    SOCKET s = given_out();
    CHECK_IS(cp_set_checked(1), 0);
    read_what_was_told(s);
    check_next_socket(another(s));
    CHECK_IS(cp_set_checked(0), 1);
}

/* The question is spared. But the kernel, which is asked for more, does not have the next socket. */
static void what_asks_for_more_is_meant_for_the_socket_that_is_there(void)
{
    SOCKET s = given_out();
    read_what_was_told(s);
    s = another(s);
    CHECK_IS(enable(port, s, 2, FILTER_IN | FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_OUT);
    check_next_socket(s);
}

/* ---- of which packets it is ------------------------------------------------------------------------- */

static void another_datagram_is_told(void)
{
    send_to_itself(ours);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
}

/* The read has found nothing. But before it returns, data arrives and is reported. */
static void a_packet_that_is_taken_during_a_read_ends_its_hint(void)
{
    ours = given_out();
    CHECK_IS(enable(port, ours, 1, FILTER_IN, EDGE_ON), ERROR_SUCCESS);
    another_datagram_is_told();
    behind_a_read = another_datagram_is_told;
    drain(ours);
    CHECK(behind_a_read == NULL);
    CHECK_IS(enable(port, ours, 1, FILTER_IN, EDGE_ON), ERROR_SUCCESS);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
    END_REGISTRATION(port, ours, 1);
    CHECK_IS(closesocket(ours), 0);
}

static void another_byte_is_told(void)
{
    send_all(theirs, "x", 1);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
}

/* The change has a hint, and requests more. Before the kernel is asked for that, an event is
 * reported. */
static void a_packet_that_is_taken_during_a_change_ends_the_hint(void)
{
    static char much[1 << 16];
    tcp_pair(&ours, &theirs);
    set_nonblocking(ours);
    CHECK_IS(enable(port, ours, 1, FILTER_IN, EDGE_ON), ERROR_SUCCESS);
    another_byte_is_told();
    while (send(ours, much, sizeof much, 0) > 0) {
    }
    CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
    drain(ours);
    behind_a_change = another_byte_is_told;
    CHECK_IS(enable(port, ours, 1, FILTER_IN | FILTER_OUT, EDGE_ON), ERROR_SUCCESS);
    CHECK(behind_a_change == NULL);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
    END_REGISTRATION(port, ours, 1);
    CHECK_IS(closesocket(ours), 0);
    CHECK_IS(closesocket(theirs), 0);
}

int main(void)
{
    start();
    port = new_port(0);
    a_number_that_was_given_up_is_asked_about();
    what_a_former_socket_had_read_spares_nothing();
    a_hint_spares_nothing_of_what_is_being_removed();
    the_checked_mode_asks_in_spite_of_a_hint();
    what_asks_for_more_is_meant_for_the_socket_that_is_there();
    a_packet_that_is_taken_during_a_read_ends_its_hint();
    a_packet_that_is_taken_during_a_change_ends_the_hint();
    CHECK(is_silent(port));
    CHECK_IS(CloseHandle(port), TRUE);
    return finish();
}
