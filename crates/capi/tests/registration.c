/* What can be asked of a registration, and what each wrong entry gets. Rows 8 to 16. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <limits.h>

#include "check.h"

static HANDLE port;

/* Row 8. */
static void one_operation_for_each_entry(void)
{
    static const unsigned wrong[] = {
        SOCK_NOTIFY_OP_ENABLE | SOCK_NOTIFY_OP_DISABLE,
        SOCK_NOTIFY_OP_ENABLE | SOCK_NOTIFY_OP_REMOVE,
        SOCK_NOTIFY_OP_DISABLE | SOCK_NOTIFY_OP_REMOVE,
        SOCK_NOTIFY_OP_ENABLE | SOCK_NOTIFY_OP_DISABLE | SOCK_NOTIFY_OP_REMOVE,
        8,
        0x80,
        8 | SOCK_NOTIFY_OP_ENABLE,
    };
    SOCKET s = udp_socket();
    size_t i;
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_IS(apply(port, change(s, 1, wrong[i], FILTER_OUT, LEVEL_ON)), ERROR_INVALID_PARAMETER);
        CHECK_IS(unregister(port, s), ERROR_NOT_FOUND);
    }
    /* On a registered socket a wrong entry changes nothing. */
    CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_IS(apply(port, change(s, 2, wrong[i], FILTER_OUT, LEVEL_ON)), ERROR_INVALID_PARAMETER);
    }
    CHECK(is_silent(port));
    END_REGISTRATION(port, s, 1);
    CHECK_IS(closesocket(s), 0);
}

/* Row 9. */
static void a_trigger_is_level_or_edge_and_once_or_not(void)
{
    unsigned trigger;
    for (trigger = 0; trigger < 0x100; trigger++) {
        unsigned kind = trigger & (SOCK_NOTIFY_TRIGGER_LEVEL | SOCK_NOTIFY_TRIGGER_EDGE);
        unsigned life = trigger & (SOCK_NOTIFY_TRIGGER_ONESHOT | SOCK_NOTIFY_TRIGGER_PERSISTENT);
        int is_right = (kind == SOCK_NOTIFY_TRIGGER_LEVEL || kind == SOCK_NOTIFY_TRIGGER_EDGE) &&
                       life != (SOCK_NOTIFY_TRIGGER_ONESHOT | SOCK_NOTIFY_TRIGGER_PERSISTENT) &&
                       (trigger & ~(unsigned)SOCK_NOTIFY_TRIGGER_ALL) == 0;
        SOCKET s = udp_socket();
        DWORD result = enable(port, s, trigger, FILTER_OUT, trigger);
        CHECK_IS(result, is_right ? ERROR_SUCCESS : ERROR_INVALID_PARAMETER);
        if (is_right) {
            CHECK_NEXT(port, trigger, SOCK_NOTIFY_EVENT_OUT);
            if (kind == SOCK_NOTIFY_TRIGGER_LEVEL && life != SOCK_NOTIFY_TRIGGER_ONESHOT) {
                CHECK_NEXT(port, trigger, SOCK_NOTIFY_EVENT_OUT); /* persistent by default */
            } else if (HAS_EDGES || life == SOCK_NOTIFY_TRIGGER_ONESHOT) {
                CHECK(is_silent(port));
            }
            END_REGISTRATION(port, s, trigger);
        } else {
            CHECK_IS(unregister(port, s), ERROR_NOT_FOUND);
        }
        CHECK_IS(closesocket(s), 0);
    }
    CHECK(is_silent(port));
}

/* Row 10. */
static void errors_and_removal_cannot_be_asked_for(void)
{
    SOCKET s = udp_socket(), refused = tcp_socket(), keeper;
    struct sockaddr_in address = an_address_that_refuses(&keeper);

    CHECK_IS(enable(port, s, 1, FILTER_OUT | SOCK_NOTIFY_EVENT_ERR | SOCK_NOTIFY_EVENT_REMOVE, LEVEL_ONCE),
             ERROR_SUCCESS);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_OUT);
    CHECK_IS(enable(port, s, 1, SOCK_NOTIFY_EVENT_ERR | SOCK_NOTIFY_EVENT_REMOVE, LEVEL_ON), ERROR_SUCCESS);
    CHECK(is_silent(port));
    END_REGISTRATION(port, s, 1);

    /* Even without any filter an error is reported. */
    set_nonblocking(refused);
    CHECK_IS(enable(port, refused, 2, SOCK_NOTIFY_REGISTER_EVENT_NONE, LEVEL_ON), ERROR_SUCCESS);
    CHECK(is_silent(port));
    CHECK_SOCKET_ERROR(connect(refused, (struct sockaddr *)&address, sizeof address), WSAEWOULDBLOCK);
    CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_ERR);
    CHECK(is_silent(port));
    END_REGISTRATION(port, refused, 2);

    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(refused), 0);
    CHECK_IS(closesocket(keeper), 0);
}

static void a_filter_with_unknown_bits_is_refused(void)
{
    SOCKET s = udp_socket();
    unsigned bit;
    for (bit = 8; bit < 0x10000; bit *= 2) {
        int is_ignored = bit == SOCK_NOTIFY_EVENT_ERR || bit == SOCK_NOTIFY_EVENT_REMOVE;
        CHECK_IS(enable(port, s, 1, FILTER_IN | bit, LEVEL_ON), is_ignored ? ERROR_SUCCESS : ERROR_INVALID_PARAMETER);
        if (is_ignored) {
            END_REGISTRATION(port, s, 1);
        }
    }
    CHECK_IS(closesocket(s), 0);
}

/* Row 11. */
static void a_socket_is_on_one_port(void)
{
    HANDLE other = new_port(0);
    SOCKET s = udp_socket(), twin = duplicate(s);
    CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
    CHECK_IS(enable(other, s, 2, FILTER_OUT, LEVEL_ON), ERROR_INVALID_PARAMETER);
    CHECK_IS(unregister(other, s), ERROR_NOT_FOUND);
    CHECK_IS(disable(other, s), ERROR_NOT_FOUND);
    CHECK(is_silent(other));
    CHECK(is_silent(port));

    /* A duplicate is another number, and so another socket. */
    CHECK_IS(enable(other, twin, 3, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(other, 3, SOCK_NOTIFY_EVENT_OUT);
    END_REGISTRATION(other, twin, 3);

    CHECK_IS(unregister(port, s), ERROR_SUCCESS);
    CHECK_IS(enable(other, s, 4, FILTER_OUT, LEVEL_ONCE), ERROR_INVALID_PARAMETER); /* not before the last packet */
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_REMOVE);
    CHECK_IS(enable(other, s, 4, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(other, 4, SOCK_NOTIFY_EVENT_OUT);
    END_REGISTRATION(other, s, 4);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(twin), 0);
    CHECK_IS(CloseHandle(other), TRUE);
}

/* Row 12. */
static void enabling_again_overwrites_filter_and_trigger_but_not_the_key(void)
{
    SOCKET s = udp_socket();
    CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
    CHECK(is_silent(port));
    CHECK_IS(enable(port, s, 2, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_OUT);
    CHECK(is_silent(port));
    CHECK_IS(enable(port, s, 3, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS); /* a spent one-shot */
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_OUT);
    CHECK(is_silent(port));
    CHECK_IS(enable(port, s, 4, FILTER_OUT, LEVEL_ON), ERROR_SUCCESS);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_OUT);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_OUT);
    END_REGISTRATION(port, s, 1);

    CHECK_IS(enable(port, s, 5, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, 5, SOCK_NOTIFY_EVENT_OUT);
    END_REGISTRATION(port, s, 5);
    CHECK_IS(closesocket(s), 0);
}

/* Row 14. */
static void removal_makes_one_packet_the_last(void)
{
    SOCKET s = udp_socket();
    int i;
    CHECK_IS(unregister(port, s), ERROR_NOT_FOUND);

    /* Enabled, with a packet that could be taken. */
    CHECK_IS(enable(port, s, 1, FILTER_OUT, LEVEL_ON), ERROR_SUCCESS);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_OUT);
    CHECK_IS(unregister(port, s), ERROR_SUCCESS);
    for (i = 0; i < 3; i++) {
        CHECK_IS(unregister(port, s), ERROR_SUCCESS); /* its packet is still queued */
        CHECK_IS(enable(port, s, 2, FILTER_OUT, LEVEL_ON), ERROR_INVALID_PARAMETER);
        CHECK_IS(disable(port, s), ERROR_INVALID_PARAMETER);
    }
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_REMOVE);
    CHECK_IS(unregister(port, s), ERROR_NOT_FOUND);
    CHECK(is_silent(port));

    /* Disabled. */
    CHECK_IS(enable(port, s, 3, FILTER_OUT, LEVEL_ON), ERROR_SUCCESS);
    CHECK_IS(disable(port, s), ERROR_SUCCESS);
    END_REGISTRATION(port, s, 3);

    /* A one-shot that is spent. */
    CHECK_IS(enable(port, s, 4, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, 4, SOCK_NOTIFY_EVENT_OUT);
    END_REGISTRATION(port, s, 4);
    CHECK(is_silent(port));
    CHECK_IS(closesocket(s), 0);
}

/* Row 11: the last packet is never taken, since its port is gone. */
static void what_a_port_was_removing_when_it_was_closed_may_be_registered(void)
{
    HANDLE gone = new_port(0);
    SOCKET s = udp_socket();
    CHECK_IS(enable(gone, s, 1, FILTER_OUT, LEVEL_ON), ERROR_SUCCESS);
    CHECK_IS(unregister(gone, s), ERROR_SUCCESS);
    CHECK_IS(enable(port, s, 2, FILTER_OUT, LEVEL_ONCE), ERROR_INVALID_PARAMETER);
    CHECK_IS(CloseHandle(gone), TRUE);
    CHECK_IS(enable(port, s, 2, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_OUT);
    END_REGISTRATION(port, s, 2);
    CHECK_IS(closesocket(s), 0);
}

/* Row 15. */
static void no_operation_is_no_error(void)
{
    SOCKET s = udp_socket();
    CHECK_IS(apply(port, change(s, 1, SOCK_NOTIFY_OP_NONE, FILTER_OUT, LEVEL_ON)), ERROR_SUCCESS);
    CHECK_IS(apply(port, change(INVALID_SOCKET, 1, SOCK_NOTIFY_OP_NONE, 0, 0)), ERROR_SUCCESS);
    CHECK_IS(unregister(port, s), ERROR_NOT_FOUND);
    CHECK(is_silent(port));
    CHECK_IS(closesocket(s), 0);
}

/* Row 16. */
static void what_is_no_socket_is_told_for_its_entry(void)
{
    SOCKET closed = udp_socket(), good = udp_socket();
    uintptr_t file, pipes[2];
    SOCK_NOTIFY_REGISTRATION changes[6];
    open_file_and_pipe(&file, pipes);
    CHECK_IS(closesocket(closed), 0);
    changes[0] = change((SOCKET)file, 1, SOCK_NOTIFY_OP_ENABLE, FILTER_IN, LEVEL_ON);
    changes[1] = change(closed, 2, SOCK_NOTIFY_OP_ENABLE, FILTER_IN, LEVEL_ON);
    changes[2] = change(INVALID_SOCKET, 3, SOCK_NOTIFY_OP_ENABLE, FILTER_IN, LEVEL_ON);
    changes[3] = change((SOCKET)0x7FFFFFFF, 4, SOCK_NOTIFY_OP_ENABLE, FILTER_IN, LEVEL_ON);
    changes[4] = change(good, 5, SOCK_NOTIFY_OP_ENABLE, FILTER_OUT, LEVEL_ONCE);
    changes[5] = change((SOCKET)pipes[1], 6, SOCK_NOTIFY_OP_ENABLE, FILTER_OUT, LEVEL_ON);
    CHECK_IS(ProcessSocketNotifications(port, 6, changes, 0, 0, NULL, NULL), ERROR_SUCCESS);
    CHECK_IS(changes[0].registrationResult, WSAENOTSOCK);
    CHECK_IS(changes[1].registrationResult, WSAENOTSOCK);
    CHECK_IS(changes[2].registrationResult, WSAENOTSOCK);
    CHECK_IS(changes[3].registrationResult, WSAENOTSOCK);
    CHECK_IS(changes[4].registrationResult, ERROR_SUCCESS);
    CHECK_IS(changes[5].registrationResult, WSAENOTSOCK);
    CHECK_NEXT(port, 5, SOCK_NOTIFY_EVENT_OUT);
    END_REGISTRATION(port, good, 5);
    close_file_and_pipe(file, pipes);
    CHECK_IS(closesocket(good), 0);
}

/* Row 16: whatever numbers a program makes up. */
static void a_number_that_is_no_socket_costs_no_memory(void)
{
    const long before = peak_memory();
    const DWORD time = 1;
    const int numbers = is_slow() ? 100 : 10000;
    int i;
    for (i = 1; i <= numbers; i++) {
        SOCKET s = (SOCKET)i * 1600;
        CHECK_IS(enable(port, s, 1, FILTER_OUT, LEVEL_ON), WSAENOTSOCK);
        CHECK_IS(unregister(port, s), WSAENOTSOCK);
        CHECK_SOCKET_ERROR(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, (const char *)&time, sizeof time), WSAENOTSOCK);
        CHECK_SOCKET_ERROR(closesocket(s), WSAENOTSOCK);
    }
    CHECK_IS(enable(port, (SOCKET)INT_MAX, 1, FILTER_OUT, LEVEL_ON), WSAENOTSOCK);
    CHECK(peak_memory() - before < 64 * 1024);
}

static void a_socket_may_be_in_any_state_and_family(void)
{
    struct sockaddr_in address;
    SOCKET sockets[6], far;
    uintptr_t i;
    sockets[0] = tcp_socket();
    sockets[1] = tcp_listener(&address);
    tcp_pair(&sockets[2], &far);
    sockets[3] = udp_socket();
    sockets_of_another_family(&sockets[4], &sockets[5]);
    set_nonblocking(sockets[2]);
    for (i = 0; i < 6; i++) {
        CHECK(sockets[i] != INVALID_SOCKET);
        CHECK_IS(enable(port, sockets[i], i, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
    }
    CHECK(is_silent(port));
    send_all(far, "x", 1);
    CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_IN);
    CHECK_IS(disable(port, sockets[2]), ERROR_SUCCESS);
    for (i = 0; i < 6; i++) {
        unsigned events;
        CHECK_IS(unregister(port, sockets[i]), ERROR_SUCCESS);
        CHECK_IS(NEXT(port, &events), i);
        CHECK_IS(events, SOCK_NOTIFY_EVENT_REMOVE);
        CHECK_IS(closesocket(sockets[i]), 0);
    }
    CHECK_IS(closesocket(far), 0);
}

int main(void)
{
    start();
    port = new_port(0);
    one_operation_for_each_entry();
    a_trigger_is_level_or_edge_and_once_or_not();
    errors_and_removal_cannot_be_asked_for();
    a_filter_with_unknown_bits_is_refused();
    a_socket_is_on_one_port();
    enabling_again_overwrites_filter_and_trigger_but_not_the_key();
    removal_makes_one_packet_the_last();
    what_a_port_was_removing_when_it_was_closed_may_be_registered();
    no_operation_is_no_error();
    what_is_no_socket_is_told_for_its_entry();
    a_number_that_is_no_socket_costs_no_memory();
    a_socket_may_be_in_any_state_and_family();
    CHECK_IS(CloseHandle(port), TRUE);
    return finish();
}
