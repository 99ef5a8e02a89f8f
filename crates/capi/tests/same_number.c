/* A socket closed by a call that this library does not see, and the next one with its number, to
 * which all later requests apply. Row 30. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <completion_port.h>

#include <pthread.h>
#ifndef _WIN32
#include <sys/epoll.h>
#include <sys/syscall.h>
#endif

#include "check.h"
#include "overlapped.h"

static HANDLE port;

static const unsigned triggers[] = {LEVEL_ON, LEVEL_ONCE, EDGE_ON, EDGE_ONCE};
enum { TRIGGERS = 4 };

#ifndef _WIN32
/* ---- replacing the library's kernel calls, where a program can define them --------------- */

/* The program defines these functions, which the library calls. */
static int refusal; /* the error that the next addition to a set gets, or 0 */
static unsigned questions;

#ifdef __cplusplus
#define THROWS_NOTHING throw()
extern "C" {
#else
#define THROWS_NOTHING
#endif
int epoll_ctl(int set, int operation, int descriptor, struct epoll_event *event) THROWS_NOTHING
{
    __atomic_add_fetch(&questions, 1, __ATOMIC_SEQ_CST);
    if (operation == EPOLL_CTL_ADD && refusal) {
        /* Reports an existing entry anyway. */
        int outcome = (int)syscall(SYS_epoll_ctl, set, operation, descriptor, event);
        if (outcome == 0) {
            (void)syscall(SYS_epoll_ctl, set, EPOLL_CTL_DEL, descriptor, event);
            errno = refusal;
        }
        return -1;
    }
    return (int)syscall(SYS_epoll_ctl, set, operation, descriptor, event);
}
#ifdef __cplusplus
}
#endif
#endif

/* ---- sockets that were not created by the library ----------------------------------------------------- */

/* What a registration has been through when its socket is closed. */
enum {
    AS_NEW,
    REPORTED,          /* its packet was taken, and the reported data is unread */
    READ,              /* and read */
    READ_AND_ENABLED,  /* and enabled again: nothing is remembered */
    QUEUED,            /* a packet is on its way */
    DISABLED,
    STATES
};

static void bring_to(SOCKET s, int state, unsigned trigger)
{
    switch (state) {
    case REPORTED:
    case READ:
    case READ_AND_ENABLED:
        send_to_itself(s);
        CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
        if (state != REPORTED) {
            drain(s);
        }
        if (state == READ_AND_ENABLED) {
            CHECK_IS(enable(port, s, 1, FILTER_IN, trigger), ERROR_SUCCESS);
            CHECK(is_silent(port));
        }
        break;
    case QUEUED:
        send_to_itself(s);
        CHECK_IS(cp_peek(port), CP_SUCCESS);
        break;
    case DISABLED:
        CHECK_IS(disable(port, s), ERROR_SUCCESS);
        break;
    default:
        break;
    }
}

/* ---- the claims ------------------------------------------------------------------------------------- */

/* Enabling applies, with its key, however the number was used before. */
static void enabling_is_meant_for_the_socket_that_is_there(void)
{
    int state, before, after, has_read;
    for (state = 0; state < STATES; state++) {
        for (before = 0; before < TRIGGERS; before++) {
            for (after = 0; after < TRIGGERS; after++) {
                for (has_read = 0; has_read < 2; has_read++) {
                    SOCKET s = unseen_socket();
                    CHECK_IS(enable(port, s, 1, FILTER_IN, triggers[before]), ERROR_SUCCESS);
                    bring_to(s, state, triggers[before]);
                    s = another(s);
                    if (has_read) {
                        drain(s); /* by a mapped call, which finds nothing */
                    }
                    CHECK_IS(enable(port, s, 2, FILTER_IN, triggers[after]), ERROR_SUCCESS);
                    send_to_itself(s);
                    CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_IN);
                    drain(s);
                    CHECK_IS(enable(port, s, 3, FILTER_IN, triggers[after]), ERROR_SUCCESS);
                    send_to_itself(s);
                    CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_IN);
                    drain(s);
                    END_REGISTRATION(port, s, 2);
                    close_unseen(s);
                }
            }
        }
    }
    CHECK(is_silent(port));
}

static void nothing_is_told_of_a_socket_that_was_not_enabled(void)
{
    int state, trigger;
    for (state = 0; state < STATES; state++) {
        for (trigger = 0; trigger < TRIGGERS; trigger++) {
            SOCKET s = unseen_socket();
            CHECK_IS(enable(port, s, 1, FILTER_IN, triggers[trigger]), ERROR_SUCCESS);
            bring_to(s, state, triggers[trigger]);
            if (state == READ_AND_ENABLED) {
                send_to_itself(s);
                CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
                /* There is something to be found when it is checked. */
                CHECK_IS(enable(port, s, 1, FILTER_IN, triggers[trigger]), ERROR_SUCCESS);
            }
            s = another(s);
            send_to_itself(s);
            if (state == QUEUED) {
                /* The packet was made of the former one, and may come; or not. */
                OVERLAPPED_ENTRY entry;
                UINT32 received;
                DWORD outcome = ProcessSocketNotifications(port, 0, NULL, 0, 1, &entry, &received);
                CHECK(outcome == WAIT_TIMEOUT || entry.lpCompletionKey == 1);
            }
            CHECK(is_silent(port));
            CHECK_IS(enable(port, s, 2, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
            CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_IN);
            END_REGISTRATION(port, s, 2);
            close_unseen(s);
        }
    }
}

/* 1168, and nothing else: no packet, and the next socket can be enabled. */
static void what_was_not_enabled_cannot_be_disabled_or_removed(void)
{
    int state, trigger, removes;
    for (state = 0; state < STATES; state++) {
        for (trigger = 0; trigger < TRIGGERS; trigger++) {
            for (removes = 0; removes < 2; removes++) {
                SOCKET s = unseen_socket();
                CHECK_IS(enable(port, s, 1, FILTER_IN, triggers[trigger]), ERROR_SUCCESS);
                bring_to(s, state, triggers[trigger]);
                s = another(s);
                CHECK_IS(removes ? unregister(port, s) : disable(port, s), ERROR_NOT_FOUND);
                CHECK_IS(removes ? disable(port, s) : unregister(port, s), ERROR_NOT_FOUND);
                send_to_itself(s);
                CHECK(is_silent(port));
                CHECK_IS(enable(port, s, 2, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
                CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_IN);
                CHECK_IS(disable(port, s), ERROR_SUCCESS);
                END_REGISTRATION(port, s, 2);
                close_unseen(s);
            }
        }
    }
}

/* Once enabled, the next socket can be disabled and removed immediately: a result of 0 means it was
 * done. */
static void what_was_enabled_can_be_disabled_and_removed(void)
{
    int state;
    for (state = 0; state < STATES; state++) {
        SOCKET s = unseen_socket();
        CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
        bring_to(s, state, LEVEL_ON);
        s = another(s);
        CHECK_IS(enable(port, s, 2, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
        CHECK_IS(disable(port, s), ERROR_SUCCESS);
        send_to_itself(s);
        CHECK(is_silent(port));
        END_REGISTRATION(port, s, 2);
        close_unseen(s);
    }
    CHECK(is_silent(port));
}

/* A duplicate keeps the former socket alive, and the kernel's watch of it. */
static void what_a_duplicate_keeps_alive_is_not_taken_for_the_next_one(void)
{
    int trigger, is_enabled, i;
    for (trigger = 0; trigger < TRIGGERS; trigger++) {
        for (is_enabled = 0; is_enabled < 2; is_enabled++) {
            SOCKET s = unseen_socket(), twin;
            struct sockaddr_in former = bind_to_loopback(s);
            CHECK_IS(enable(port, s, 1, FILTER_IN, triggers[trigger]), ERROR_SUCCESS);
            twin = duplicate(s);
            s = another(s);
            if (is_enabled) {
                CHECK_IS(enable(port, s, 2, FILTER_IN, triggers[trigger]), ERROR_SUCCESS);
                for (i = 0; i < 3; i++) {
                    send_to(s, "x", 1, &former); /* to the twin */
                    CHECK(is_silent(port));
                }
                send_to_itself(s);
                CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_IN);
                END_REGISTRATION(port, s, 2);
            } else {
                CHECK_IS(unregister(port, s), ERROR_NOT_FOUND);
                send_to(s, "x", 1, &former);
                CHECK(is_silent(port));
            }
            close_unseen(twin);
            close_unseen(s);
        }
    }
}

#ifndef _WIN32 /* where no call gives a duplicate the number that is wanted */
/* The number names the very socket again: it is registered still. */
static void a_socket_that_comes_back_to_its_number_is_registered(void)
{
    SOCKET s = unseen_socket(), twin;
    CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    twin = duplicate(s);
    CHECK(twin != INVALID_SOCKET);
    close_unseen(s);
    CHECK_IS(dup2((int)twin, (int)s), (int)s);
    CHECK_IS(enable(port, s, 2, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    send_to_itself(s);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
    END_REGISTRATION(port, s, 1);
    close_unseen(twin);
    close_unseen(s);
}
#endif

#ifndef _WIN32
/* A receive of the former socket does not take the data of the next one, or keep a receive of it waiting. */
static void an_association_ends_the_operations_of_another_socket(void)
{
    int way;
    for (way = 0; way < 4; way++) {
        const int was_associated = way & 1;
        SOCKET s = way & 2 ? unseen_socket() : udp_socket();
        OVERLAPPED former = fresh(NULL), next = fresh(NULL);
        DWORD count = 0, flags = 0;
        char bytes[2];
        (void)bind_to_loopback(s);
        if (was_associated)
            associate(s, port, 5);
        CHECK_PENDING(receive_into(s, &bytes[0], 1, NULL, &former));
        s = another(s);
        (void)bind_to_loopback(s);
        associate(s, port, 6);
        CHECK(!WSAGetOverlappedResult(s, &former, &count, FALSE, &flags));
        CHECK_IS(WSAGetLastError(), WSA_OPERATION_ABORTED);
        if (was_associated)
            CHECK_FAILED(port, 5, &former, 0, ERROR_OPERATION_ABORTED);
        CHECK_PENDING(receive_into(s, &bytes[1], 1, NULL, &next));
        send_to_itself(s);
        CHECK_ENDED(port, 6, &next, 1);
        CHECK(is_silent(port));
        CHECK_IS(closesocket(s), 0);
    }
}
#endif

#ifndef _WIN32
/* A shutdown that waits for sends means the socket that the number named. */
static void a_shutdown_is_that_of_a_socket(void)
{
    enum { MUCH = 8 << 20 };
    char *much = (char *)calloc(1, MUCH);
    SOCKET near, far;
    int pair[2];
    OVERLAPPED sending = fresh(NULL);
    CHECK(much != NULL);
    tcp_pair(&near, &far);
    CHECK_PENDING(send_from(near, much, MUCH, NULL, &sending));
    CHECK_IS(shutdown(near, SD_SEND), 0);
    CHECK_IS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    CHECK_IS(dup2(pair[0], (int)near), (int)near);
    (void)CancelIoEx((HANDLE)near, &sending);
    CHECK_IS(write((int)near, "x", 1), 1);
    CHECK_IS(send(near, "x", 1, 0), 1);
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(write(pair[0], "x", 1), 1);
    CHECK_IS(close(pair[0]), 0);
    CHECK_IS(close(pair[1]), 0);
    closesocket(far);
    free(much);
}
#endif

/* The next socket may be associated, whatever the former one was. */
static void an_association_is_that_of_a_socket(void)
{
    HANDLE other = new_port(0);
    SOCKET s = unseen_socket();
    CHECK(CreateIoCompletionPort((HANDLE)s, port, 1, 0) == port);
    CHECK(CreateIoCompletionPort((HANDLE)s, other, 2, 0) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    s = another(s);
    CHECK(CreateIoCompletionPort((HANDLE)s, other, 2, 0) == other);
    CHECK(CreateIoCompletionPort((HANDLE)s, other, 2, 0) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    close_unseen(s);
    CHECK_IS(CloseHandle(other), TRUE);
#ifndef _WIN32
    an_association_ends_the_operations_of_another_socket();
    a_shutdown_is_that_of_a_socket();
#endif
}

/* Sends a byte to itself, and returns whether a packet reports that within `patience` milliseconds. */
static int a_send_is_reported(SOCKET s, DWORD patience)
{
    struct sockaddr_in address = bind_to_loopback(s);
    OVERLAPPED overlapped = fresh(NULL), *reported = NULL;
    char byte = 'x';
    WSABUF buffer = buffer_of(&byte, 1);
    DWORD bytes = 0;
    ULONG_PTR key = 0;
    CHECK_IS(WSASendTo(s, &buffer, 1, NULL, 0, (struct sockaddr *)&address, sizeof address, &overlapped, NULL), 0);
    if (!GetQueuedCompletionStatus(port, &bytes, &key, &reported, patience)) {
        CHECK(reported == NULL);
        return 0;
    }
    CHECK(reported == &overlapped && bytes == 1);
    return 1;
}

/* What a program chooses for a socket does not apply to the next one of its number. */
static void a_choice_is_that_of_a_socket(void)
{
    SOCKET s = unseen_socket();
    CHECK_IS(SetFileCompletionNotificationModes((HANDLE)s, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS), TRUE);
    s = another(s);
    CHECK(CreateIoCompletionPort((HANDLE)s, port, 1, 0) == port);
    CHECK(a_send_is_reported(s, SOON));
    CHECK_IS(SetFileCompletionNotificationModes((HANDLE)s, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS), TRUE);
    s = another(s);
    CHECK(CreateIoCompletionPort((HANDLE)s, port, 1, 0) == port);
    CHECK(a_send_is_reported(s, SOON));
    s = another(s);
    CHECK_IS(SetFileCompletionNotificationModes((HANDLE)s, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS), TRUE);
    CHECK(CreateIoCompletionPort((HANDLE)s, port, 1, 0) == port);
    CHECK(!a_send_is_reported(s, A_WHILE));
#ifndef _WIN32
    /* Chosen before the library notices that it is another socket. */
    {
        OVERLAPPED overlapped = fresh(NULL);
        int room = 30000, size = sizeof room;
        char byte;
        s = another(s);
        CHECK_IS(setsockopt(s, SOL_SOCKET, SO_RCVBUF, (char *)&room, sizeof room), 0);
        (void)bind_to_loopback(s);
        CHECK_IS(receive_into(s, &byte, 1, NULL, &overlapped), SOCKET_ERROR);
        CHECK_IS(WSAGetLastError(), WSA_IO_PENDING);
        CHECK_IS(getsockopt(s, SOL_SOCKET, SO_RCVBUF, (char *)&room, &size), 0);
        CHECK_IS(room, 30000);
        CHECK_IS(CancelIoEx((HANDLE)s, &overlapped), TRUE);
        CHECK_IS(GetOverlappedResult((HANDLE)s, &overlapped, (DWORD *)&size, TRUE), FALSE);
    }
#endif
    close_unseen(s);
}

#ifndef _WIN32
/* If the kernel refuses to watch the next socket, the entry has the error, and nothing is
 * registered. */
static void what_the_kernel_refuses_is_told_at_once(void)
{
    SOCKET s = unseen_socket();
    CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
    s = another(s);
    refusal = ENOSPC;
    CHECK_IS(enable(port, s, 2, FILTER_IN, LEVEL_ON), ERROR_NO_SYSTEM_RESOURCES);
    CHECK_IS(unregister(port, s), ERROR_NOT_FOUND);
    refusal = 0;
    send_to_itself(s);
    CHECK(is_silent(port));
    CHECK_IS(enable(port, s, 3, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
    CHECK_NEXT(port, 3, SOCK_NOTIFY_EVENT_IN);
    END_REGISTRATION(port, s, 3);
    close_unseen(s);
    CHECK_IS(enable(port, s, 4, FILTER_IN, LEVEL_ON), WSAENOTSOCK);
}

/* A number that the library gave out, and that a read has found drained, is enabled without a question. */
static void a_hint_spares_the_question_of_a_number_that_was_given_out(void)
{
    SOCKET s = udp_socket();
    int i;
    set_nonblocking(s);
    CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    for (i = 0; i < 3; i++) {
        unsigned before;
        send_to_itself(s);
        CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
        drain(s);
        before = questions;
        CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        CHECK_IS(questions, before);
        CHECK(is_silent(port));
    }
    /* No call notifies the library that the number names another socket. */
    s = another(s);
    CHECK_IS(enable(port, s, 2, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    send_to_itself(s);
    CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_IN);
    drain(s);
    s = another(s);
    drain(s);
    CHECK_IS(enable(port, s, 3, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    send_to_itself(s);
    CHECK_NEXT(port, 3, SOCK_NOTIFY_EVENT_IN);
    END_REGISTRATION(port, s, 3);
    close_unseen(s);
}

/* The same holds for a number that the program announces as just returned. */
static void a_number_that_is_adopted_is_as_good_as_given_out(void)
{
    SOCKET s = unseen_socket();
    int round;
    for (round = 1; round <= 2; round++) {
        unsigned before;
        cp_adopt((int)s);
        CHECK_IS(enable(port, s, (uintptr_t)round, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        send_to_itself(s);
        CHECK_NEXT(port, round, SOCK_NOTIFY_EVENT_IN);
        drain(s);
        before = questions;
        CHECK_IS(enable(port, s, (uintptr_t)round, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        CHECK_IS(questions, before);
        drain(s);
        s = another(s);
    }
    cp_forget((int)s);
    close_unseen(s);
    cp_adopt(-1);
    cp_adopt(0x7FFFFFFF);
}
#endif

/* ---- at random -------------------------------------------------------------------------------------- */

enum { OWNERS = 4, ROUNDS = 600, WORDS = OWNERS * ROUNDS };

static unsigned char told[WORDS + 1];
static int round_count;

/* Numbers pass from one thread to another all the time, and each socket must be reported. */
static void *closes_and_opens(void *argument)
{
    uintptr_t first = (uintptr_t)argument * (uintptr_t)round_count + 1;
    int i;
    for (i = 0; i < round_count; i++) {
        uintptr_t key = first + (uintptr_t)i;
        SOCKET s = unseen_socket();
        bind_to_loopback(s);
        if (i % 3 == 0) {
            drain(s);
        }
        CHECK_IS(enable(port, s, key, FILTER_IN, triggers[i % TRIGGERS]), ERROR_SUCCESS);
        send_to_itself(s);
        while (!__atomic_load_n(&told[key], __ATOMIC_ACQUIRE)) {
            Sleep(1);
        }
        if (i % 2 == 0) {
            drain(s);
            CHECK_IS(enable(port, s, key, FILTER_IN, triggers[(i + 1) % TRIGGERS]), ERROR_SUCCESS);
        }
        close_unseen(s);
    }
    return NULL;
}

static void *tells(void *unused)
{
    (void)unused;
    for (;;) {
        unsigned events;
        uintptr_t key = NEXT(port, &events);
        if (key == 0) {
            CHECK_IS(PostQueuedCompletionStatus(port, 0, 0, NULL), TRUE);
            return NULL;
        }
        CHECK_IS(events, SOCK_NOTIFY_EVENT_IN);
        __atomic_store_n(&told[key], 1, __ATOMIC_RELEASE);
    }
}

static void every_socket_is_told_of_at_random(void)
{
    pthread_t owners[OWNERS], tellers[2];
    uintptr_t i;
    unsigned events;
    /* .ci/wine/server_fails.c shows it. */
    NOT_ON_WINE("its server fails where a number is polled of which another thread is making a socket");
    round_count = is_slow() ? ROUNDS / 30 : tries(ROUNDS / 3, ROUNDS);
    for (i = 0; i < 2; i++) {
        CHECK_IS(pthread_create(&tellers[i], NULL, tells, NULL), 0);
    }
    for (i = 0; i < OWNERS; i++) {
        CHECK_IS(pthread_create(&owners[i], NULL, closes_and_opens, (void *)i), 0);
    }
    for (i = 0; i < OWNERS; i++) {
        CHECK_IS(pthread_join(owners[i], NULL), 0);
    }
    CHECK_IS(PostQueuedCompletionStatus(port, 0, 0, NULL), TRUE);
    for (i = 0; i < 2; i++) {
        CHECK_IS(pthread_join(tellers[i], NULL), 0);
    }
    CHECK_IS(NEXT(port, &events), 0); /* the one that was handed on last */
}

static void what_holds_on_every_system(void)
{
    enabling_is_meant_for_the_socket_that_is_there();
    nothing_is_told_of_a_socket_that_was_not_enabled();
    what_was_not_enabled_cannot_be_disabled_or_removed();
    what_was_enabled_can_be_disabled_and_removed();
    if (KNOWS_WHAT_IS_KEPT_ALIVE) {
        what_a_duplicate_keeps_alive_is_not_taken_for_the_next_one();
    }
#ifndef _WIN32
    a_socket_that_comes_back_to_its_number_is_registered();
#endif
    an_association_is_that_of_a_socket();
    a_choice_is_that_of_a_socket();
    memset(told, 0, sizeof told);
    every_socket_is_told_of_at_random();
}

int main(void)
{
    start();
    port = new_port(0);
    what_holds_on_every_system();
#if HAS_CHECKED_MODE
    what_the_kernel_refuses_is_told_at_once();
    a_hint_spares_the_question_of_a_number_that_was_given_out();
    a_number_that_is_adopted_is_as_good_as_given_out();
    CHECK_IS(cp_set_checked(1), 0);
    what_holds_on_every_system();
    what_the_kernel_refuses_is_told_at_once();
    CHECK_IS(cp_set_checked(0), 1);
#endif
    CHECK_IS(CloseHandle(port), TRUE);
    return finish();
}
